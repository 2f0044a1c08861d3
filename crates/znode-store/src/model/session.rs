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
    /// How long the session had been silent when the leader proposed that, in milliseconds.
    pub ms: u32,
}

/// A place in the order in which one connection of a session sends its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Which connection: the position at which the session was opened, or last reconnected.
    pub since: Zxid,
    /// How many turns of that connection were before.
    pub number: u64,
}

/// A live session, for people and front ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionView {
    /// Its id.
    pub session: SessionId,
    /// After so long without a heartbeat the leader ends it.
    pub timeout_ms: u32,
    /// What its client called it.
    pub name: Arc<str>,
    /// Where its client called from.
    pub address: Arc<str>,
    /// When it was opened, in milliseconds since 1970.
    pub opened_at_ms: u64,
    /// How many ephemeral nodes it owns.
    pub ephemerals: u32,
    /// The position at which it was opened, or last reconnected.
    pub connected_at: Zxid,
    /// Whose it is.
    pub owner: Principal,
    /// Its silence, if that is on record.
    pub silence: Option<Silence>,
}

/// What became of a session.
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
