//! Values that describe sessions.

use alloc::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::access::principal::Principal;
use crate::model::address::CallerAddress;
use crate::model::ids::{SessionId, Zxid};

/// Recorded silence of a session. It means that no heartbeat of the session was confirmed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    /// Position of the command that recorded it.
    pub at: Zxid,
    /// Silence in milliseconds at the time of the proposal.
    pub ms: u32,
}

/// Position of a request in the order in which one connection of a session sends its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Position at which the session was opened or last resumed, which identifies the connection.
    pub since: Zxid,
    /// Number of earlier turns on that connection.
    pub number: u64,
}

/// View of a live session, for operators and front ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionView {
    /// Its id.
    pub session: SessionId,
    /// Time without a heartbeat after which the leader ends the session.
    pub timeout_ms: u32,
    /// Name that its client gave it.
    pub name: Arc<str>,
    /// Address that its client called from.
    pub address: CallerAddress,
    /// Time of its opening in milliseconds since 1970.
    pub opened_at_ms: u64,
    /// Number of its ephemeral nodes.
    pub ephemerals: u32,
    /// The position at which it was opened, or last reconnected.
    pub connected_at: Zxid,
    /// Principal that owns it.
    pub owner: Principal,
    /// Recorded silence, if there is a record.
    pub silence: Option<Silence>,
    /// True if it is a lease.
    pub is_lease: bool,
}

/// Fate of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionFate {
    /// The session lives.
    Live,
    /// The session has recently expired or been closed.
    Ended,
    /// The session ended long ago, or never existed.
    Unknown,
}

/// Session with its owner, which is `None` if the session does not live. Requests for such a session are refused later.
#[derive(Clone, Copy)]
pub(crate) struct OwnedSession<'s> {
    pub(crate) session: SessionId,
    pub(crate) owner: Option<&'s Principal>,
}
