//! What happens in the model, and what waits for cores.

use crate::Nanos;
use crate::batches::BatchId;

/// A client's request on its way.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// When its client sent it.
    pub sent: Nanos,
    /// The group that it is at, or goes to.
    pub group: u32,
    /// The groups that it goes to afterwards, the next one last.
    pub then: Vec<u32>,
    pub kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    /// A write that takes locks of several groups.
    Multi,
}

/// What happens.
#[derive(Debug)]
pub(crate) enum Event {
    /// In an open loop somebody asks.
    Next,
    /// A client asks, if it does in a closed loop.
    Ask,
    /// A request reaches its group.
    Arrive(Request),
    /// A job on a core of this machine is done.
    Done(usize, Job),
    /// The disk of this machine has synced.
    Synced(usize),
    /// An entry reaches a follower.
    Reach { batch: BatchId, member: usize },
    /// A follower's word that it has an entry on its disk reaches the leader.
    Acknowledged(BatchId),
    /// An entry that is committed is to be applied at the leader.
    Apply(BatchId),
    /// An answer reaches its client.
    Answered(Request),
    /// A machine is lost.
    Lose(usize),
    /// A group that had lost its leader gets another one.
    Lead(usize),
}

/// What takes a core.
#[derive(Debug)]
pub(crate) enum Job {
    Client,
    Front(Request),
    Read(Request),
    Entry(BatchId),
    Follow { batch: BatchId, member: usize },
    Apply(BatchId),
}
