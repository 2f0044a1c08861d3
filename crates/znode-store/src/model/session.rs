//! Values that describe sessions.

use alloc::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::access::principal::Principal;
use crate::model::ids::{SessionId, Zxid};

/// The silence of a session as it is on record. While it is there, no heartbeat of the session has been confirmed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    /// The position of the command that put it on record.
    pub at: Zxid,
    /// Silence of the session in milliseconds when the leader proposed that.
    pub ms: u32,
}

/// A place in the order in which one connection of a session sends its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// The connection, by the position at which the session was opened or last resumed.
    pub since: Zxid,
    /// Number of earlier turns on that connection.
    pub number: u64,
}

/// A live session, for people and front ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionView {
    /// Its id.
    pub session: SessionId,
    /// Time without a heartbeat after which the leader ends the session.
    pub timeout_ms: u32,
    /// Name that its client gave it.
    pub name: Arc<str>,
    /// Address that its client called from.
    pub address: Arc<str>,
    /// Time of its opening in milliseconds since 1970.
    pub opened_at_ms: u64,
    /// Number of its ephemeral nodes.
    pub ephemerals: u32,
    /// The position at which it was opened, or last reconnected.
    pub connected_at: Zxid,
    /// Principal that owns it.
    pub owner: Principal,
    /// Its silence, if that is on record.
    pub silence: Option<Silence>,
}

/// Fate of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionFate {
    /// It lives.
    Live,
    /// It has expired or was closed, lately.
    Ended,
    /// It ended long ago, or never was.
    Unknown,
}

/// A session and its owner; `None` if the session does not live. Requests for such a session are refused where it is used.
#[derive(Clone, Copy)]
pub(crate) struct OwnedSession<'s> {
    pub(crate) session: SessionId,
    pub(crate) owner: Option<&'s Principal>,
}
