//! Leader as this node knows it, and the proof that this node still leads.

use std::time::Duration;

use openraft::ReadPolicy;

use crate::ids::NodeId;
use crate::messages::NotLeader;
use crate::state_machine::Raft;

/// Leader of a term, as far as this node knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeaderView {
    /// Term.
    pub term: u64,
    /// Leader of the term, if this node knows it.
    pub leader: Option<NodeId>,
}

/// Confirms with a quorum that this node still leads. Returns its term, and an index up to which everything is committed.
pub async fn prove_leadership(raft: &Raft, patience: Duration) -> Result<(u64, u64), NotLeader> {
    let unknown = NotLeader { leader: None };
    match tokio::time::timeout(patience, raft.get_read_linearizer(ReadPolicy::ReadIndex)).await {
        Ok(Ok(linearizer)) => {
            let read = linearizer.read_log_id();
            Ok((**read.committed_leader_id(), read.log_id().index()))
        }
        Ok(Err(error)) => Err(error.forward_to_leader().map_or(unknown, |forward| NotLeader {
            leader: forward.leader_id,
        })),
        Err(_) => Err(unknown),
    }
}
