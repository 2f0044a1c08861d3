//! Calls as their client recorded them.

use std::fmt::{self, Debug, Display, Formatter};

use serde::{Deserialize, Serialize};

/// Nanoseconds since the run began, on one monotonic clock for all clients.
pub type Nanos = u64;

/// Logical thread of a run: it makes one call at a time. After a call without an answer the thread
/// goes on under a new id, so that an open call is always the last one of its client.
pub type ClientId = u64;

/// One call: its times, its request and what its client knows of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call<I, O> {
    /// Client that made the call.
    pub client: ClientId,
    /// Time just before the request was sent.
    pub invoked: Nanos,
    /// Time just after the answer arrived. For an [`Outcome::Unknown`] the time at which the client
    /// gave up: the call may take effect at any time after `invoked`, also later than this.
    pub returned: Nanos,
    /// Request.
    pub input: I,
    /// Outcome as the client knows it.
    pub outcome: Outcome<O>,
}

/// Client's knowledge of the outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome<O> {
    /// The call took effect and returned this answer.
    Ok(O),
    /// The call certainly has no effect, now or later.
    Failed,
    /// There is no answer, or one that leaves the outcome open.
    Unknown,
}

/// Formats a time or a duration for reports, in seconds to the microsecond.
pub fn seconds(nanos: Nanos) -> String {
    format!("{:.6} s", nanos as f64 / 1e9)
}

impl<I: Debug, O: Debug> Display for Call<I, O> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            client,
            invoked,
            returned,
            input,
            outcome,
        } = self;
        write!(f, "client {client}, {} to ", seconds(*invoked))?;
        match outcome {
            Outcome::Ok(output) => write!(f, "{}: {input:?} -> {output:?}", seconds(*returned)),
            Outcome::Failed => write!(f, "{}: {input:?} -> failed", seconds(*returned)),
            Outcome::Unknown => write!(f, "(unknown): {input:?}"),
        }
    }
}
