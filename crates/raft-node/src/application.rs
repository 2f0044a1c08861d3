//! Interface between replication and the program above it: proposals, and answers to other members.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::messages::{Declined, ForwardedTrace, HeartbeatsTaken, NotLeader, SeenMoment, Touched};

/// Room for proposals in transit to the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchRoom {
    /// Maximum number of commands.
    pub commands: usize,
    /// Maximum size of the commands in bytes. The first command of a batch may be larger.
    pub bytes: usize,
}

/// Proposals of this node that are sent to the leader together.
#[derive(Debug, Default)]
pub struct ProposalBatch {
    /// Numbers of the proposals.
    pub numbers: Vec<u64>,
    /// Their commands.
    pub envelopes: Vec<Bytes>,
    /// Traces of those that are traced.
    pub traces: Vec<ForwardedTrace>,
    /// True if further proposals are queued that may be sent now.
    pub has_more: bool,
    /// Dropped when the batch has an outcome. The program may then have room for further proposals, and notifies of those.
    pub in_transit: Option<Box<dyn std::fmt::Debug + Send>>,
}

/// Program that runs on a [`RaftNode`](crate::RaftNode). For replication, commands are bytes whose first byte
/// is their version, and sessions are numbers.
pub trait Application: Send + Sync {
    /// Takes the next queued proposals of this node, as many as there is room for, and records that they are about to be sent
    /// in `term`.
    fn take_batch(&self, term: u64, room: BatchRoom) -> ProposalBatch;

    /// Records that this node, as the leader, has applied a batch of another node, which it received at
    /// `received`. These of its commands are traced.
    fn led(&self, traces: &[ForwardedTrace], received: Instant);

    /// Records that the leader of `term` has declined some of these proposals. The others are applied.
    fn settle(&self, term: u64, numbers: &[u64], declined: &Declined);

    /// Queues these proposals again, which were sent in `term` and certainly had no effect.
    fn retry(&self, term: u64, numbers: &[u64]);

    /// Queues proposals again that were sent in a term that has ended, and that were not applied.
    fn retry_lost(&self);

    /// Returns whether a command, applied now, would only wait for a later one. With `is_in_flight` this must
    /// also hold after any commands of the entries that are in flight.
    fn would_wait(&self, command: &Bytes, is_in_flight: bool) -> bool;

    /// Returns for each command whether it may enlarge the state.
    fn may_grow(&self, commands: &[Bytes]) -> Vec<bool>;

    /// Counts heartbeats of sessions, each from the time beside it, if this node leads and can prove it.
    fn touch(&self, beats: Vec<(u64, Instant)>) -> BoxFuture<'_, Result<Vec<Touched>, NotLeader>>;

    /// Counts heartbeats of sessions, each with its age in milliseconds, if this node leads and the request was in transit for at most
    /// `within`.
    fn take_heartbeats(
        &self,
        seen: Option<SeenMoment>,
        within: Duration,
        sessions: Vec<(u64, u32)>,
    ) -> BoxFuture<'_, Result<HeartbeatsTaken, NotLeader>>;

    /// Returns the index up to which a node must have applied the log for a linearizable read, if this node leads and can prove it.
    fn read_index(&self) -> BoxFuture<'_, Result<u64, NotLeader>>;

    /// Returns whether a client of this node waits for entries that are committed next.
    fn awaits_entries(&self) -> bool;

    /// Returns whether this node, which leads, has taken over the leader's duties.
    fn has_taken_over(&self) -> bool;

    /// Prepares the state for another leader, within the given time. An unprepared hand-over is safe, too.
    fn prepare_hand_over(&self, timeout: Duration) -> BoxFuture<'static, ()>;
}
