//! Interface between the peers' connections and the parts of a node above replication.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use crate::messages::{Declined, HeartbeatsTaken, NotLeader, SeenMoment, Touched};

/// Outcome of forwarded commands: applied but for those that were declined, or nothing was done because this node does not lead. Without
/// an outcome the commands were dropped with their term.
pub type Forwarded = oneshot::Receiver<Result<Declined, NotLeader>>;

/// Answers to the requests of other members that concern commands, sessions and reads. To replication, sessions are numbers.
pub trait Application: Send + Sync {
    /// Queues commands that may be proposed in `term` only. They are proposed in the order in which calls return, those of one call in one
    /// entry.
    fn forward(&self, term: u64, envelopes: Vec<Bytes>) -> BoxFuture<'_, Forwarded>;

    /// Counts heartbeats of sessions from now on, if this node leads.
    fn touch(&self, sessions: Vec<u64>) -> BoxFuture<'_, Result<Vec<Touched>, NotLeader>>;

    /// Counts heartbeats of sessions, each with its age in milliseconds, if this node leads and the request was in transit for at most
    /// `within`.
    fn take_heartbeats(
        &self,
        seen: Option<SeenMoment>,
        within: Duration,
        sessions: Vec<(u64, u32)>,
    ) -> BoxFuture<'_, Result<HeartbeatsTaken, NotLeader>>;

    /// Returns the index up to which a node must have applied the log for a linearizable read, if this node leads.
    fn read_index(&self) -> BoxFuture<'_, Result<u64, NotLeader>>;

    /// Returns whether a client of this node waits for entries that are committed next.
    fn awaits_entries(&self) -> bool;
}
