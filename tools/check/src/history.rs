//! Calls as a client saw them.

use std::fmt::{self, Debug, Display, Formatter};

use serde::{Deserialize, Serialize};

/// Nanoseconds since the run began, on one monotonic clock for all clients.
pub type Nanos = u64;

/// A logical thread of a run that calls one thing at a time. Who got no answer goes on under a new number, so that a call
/// without an end is the last one of its client.
pub type ClientId = u64;

/// One call: its time, what was asked and what is known of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call<I, O> {
    /// Who called.
    pub client: ClientId,
    /// The moment before the request was sent.
    pub invoked: Nanos,
    /// The moment after the answer came. For an [`Outcome::Unknown`] the moment at which the client gave up: the call may
    /// take effect at any time after `invoked`, also later than this.
    pub returned: Nanos,
    /// What was asked.
    pub input: I,
    /// What came back.
    pub outcome: Outcome<O>,
}

/// What a client knows of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome<O> {
    /// Carried out, with this answer.
    Ok(O),
    /// Certainly not carried out, now or later.
    Failed,
    /// No answer, or one that leaves it open.
    Unknown,
}

/// A moment or a span as reports write it: seconds to the microsecond.
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
