//! The leader as this node knows it, and the proof that this node still leads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::{ReadPolicy, ServerState};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::counters::RaftCounters;
use crate::ids::{Member, NodeId};
use crate::messages::NotLeader;
use crate::peers::Peers;
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
pub async fn prove_leadership(raft: &Raft, timeout: Duration) -> Result<(u64, u64), NotLeader> {
    let unknown = NotLeader { leader: None };
    match tokio::time::timeout(timeout, raft.get_read_linearizer(ReadPolicy::ReadIndex)).await {
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

/// Senders of changes of the leader.
pub struct LeaderViews {
    /// Current leader.
    pub leader: watch::Sender<LeaderView>,
    /// Term in which this node itself leads.
    pub own_term: watch::Sender<Option<u64>>,
}

/// Follows openraft's view of the leader and of the members until `stop`, and publishes it.
pub async fn follow(
    raft: Raft,
    peers: Arc<Peers>,
    views: LeaderViews,
    counters: Arc<RaftCounters>,
    stop: CancellationToken,
) {
    let mut metrics = raft.server_metrics();
    let mut members = None;
    let mut stood_in = None;
    loop {
        let (view, state, membership, committed) = {
            let now = metrics.borrow_watched();
            let view = LeaderView {
                term: now.vote.leader_id.term,
                leader: now.current_leader,
            };
            (
                view,
                now.state,
                now.membership_config.clone(),
                now.committed_membership_config.clone(),
            )
        };
        // A leader that is removed by an uncommitted change may still undo the change.
        let known: BTreeMap<NodeId, Member> = committed
            .nodes()
            .chain(membership.nodes())
            .map(|(id, member)| (*id, member.clone()))
            .collect();
        if members.as_ref() != Some(&known) {
            peers.registry().set_members(known.clone());
            peers.keep_members();
            members = Some(known);
        }
        // A candidate that wins at once was never observed as one; its term reveals the election.
        let leads = state == ServerState::Leader;
        if (leads || state == ServerState::Candidate) && stood_in != Some(view.term) {
            stood_in = Some(view.term);
            counters.elections.up();
        }
        views.leader.send_if_modified(|before| {
            let changed = *before != view;
            if changed && view.leader.is_some() {
                counters.leader_changes.up();
            }
            if changed {
                tracing::info!(term = view.term, leader = ?view.leader, "membership: the leader has changed");
                *before = view;
            }
            changed
        });
        let own_term = leads.then_some(view.term);
        views
            .own_term
            .send_if_modified(|before| std::mem::replace(before, own_term) != own_term);
        tokio::select! {
            changed = metrics.changed() => if changed.is_err() { return },
            () = stop.cancelled() => return,
        }
    }
}
