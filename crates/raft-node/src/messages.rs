//! Parts of messages between nodes that other modules use, too.

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;

/// Moment of one process's monotonic clock. Only that process can convert it to an age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Random number of the process.
    pub clock: u64,
    /// Microseconds since the process began to count.
    pub micros: u64,
}

/// Moment of the leader's clock as a node received it, with the time since then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenMoment {
    /// The leader's moment.
    pub moment: Moment,
    /// Microseconds since the node received it, by the node's own clock.
    pub known_for_us: u64,
}

/// Leader's answer to forwarded heartbeats.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatsTaken {
    /// Time of this answer, by the leader's clock.
    pub moment: Moment,
    /// Result of each heartbeat. `None` if the request was in transit for too long, or for an unknown time, so that
    /// the leader counted nothing.
    pub touched: Option<Vec<Touched>>,
}

/// Trace of one command of a forwarded batch. The program above the replication defines the ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardedTrace {
    /// Position of the command in the batch.
    pub place: u32,
    /// Id of the trace.
    pub trace: [u8; 16],
    /// Id of the span that the leader's part belongs to.
    pub span: [u8; 8],
}

/// Forwarded commands that the leader did not propose, because its disk has no room for them or a member
/// could not apply them. They have no effect.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declined {
    /// Their positions in the forwarded batch.
    pub places: Vec<u32>,
    /// Reason, for operators.
    pub reason: String,
    /// Set if the reason is missing disk space, and not a member that could not apply them.
    pub read_only: bool,
}

/// Rejection by a node that does not lead in the requested term, or cannot prove that it leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotLeader {
    /// Leader that the node knows.
    pub leader: Option<NodeId>,
}

/// Result of one session's heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Touched {
    /// The leader counted it; the session's timeout in milliseconds.
    Renewed(u32),
    /// The session has ended, or its end is proposed.
    Ended,
    /// No such session exists or existed.
    Unknown,
}
