//! Supervision of a running node, and its shutdown.

use std::collections::BTreeMap;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::{Instant as _, ServerState};
use tokio::time::Instant;

use super::RaftNode;
use crate::ids::NodeId;

/// Interval at which a node checks that it can still serve, so that a readiness probe causes no request to
/// the leader.
const READINESS_INTERVAL: Duration = Duration::from_millis(500);

/// Maximum time for which a stopping node waits for another leader. A transfer takes milliseconds; the
/// remaining nodes also elect a leader by themselves.
const HAND_OVER_AT_STOP: Duration = Duration::from_millis(600);

impl RaftNode {
    /// Waits until the node has failed, for example because of its disk or because its peers reject it, and
    /// returns the reason. Never returns on a healthy node.
    pub async fn failed(&self) -> String {
        let mut failure = self.inner.failure.subscribe();
        let failed = failure
            .wait_for(Option::is_some)
            .await
            .map(|failure| failure.clone());
        match failed {
            Ok(Some(reason)) => reason,
            // The sender lives in `self`.
            _ => std::future::pending().await,
        }
    }

    /// Hands leadership over to the live member with the most complete log, if this node leads.
    pub async fn hand_over(&self) {
        let handed_over = tokio::time::timeout(HAND_OVER_AT_STOP, Self::boxed(self.move_leader_away()));
        if handed_over.await.is_err() {
            tracing::warn!("node: stopping without another leader, none has taken over in time");
        }
    }

    /// Stops the tasks of this node, and those that were added to it.
    pub async fn end_tasks(&self) {
        self.inner.stop.cancel();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }

    /// Stops Raft. No entry is applied after this returns.
    pub async fn shut_down(&self) {
        if let Err(error) = Self::boxed(self.inner.raft.shutdown()).await {
            tracing::warn!(%error, "node: Raft did not stop cleanly");
        }
    }

    /// Writes the log's queue, and closes the data directory.
    pub async fn close(&self) {
        let storage = self.inner.storage.lock().take();
        if let Some(storage) = storage {
            let closed = crate::blocking::run(move || storage.close()).await;
            if let Ok(Err(error)) = closed {
                tracing::warn!(%error, "node: the log was not closed cleanly");
            }
        }
    }

    async fn move_leader_away(&self) {
        let target = {
            let metrics = self.inner.raft.metrics().borrow_watched().clone();
            if metrics.state != ServerState::Leader {
                return;
            }
            let voters: Vec<NodeId> = metrics.membership_config.voter_ids().collect();
            let answered = metrics.heartbeat.unwrap_or_default();
            let lives = |id: &NodeId| {
                let last = answered.get(id).copied().flatten();
                last.is_some_and(|last| last.elapsed() < self.inner.config.timing.election_max)
            };
            let matched: BTreeMap<NodeId, _> = metrics.replication.unwrap_or_default();
            let others = matched.into_iter();
            let others = others.filter(|(id, _)| *id != self.id() && voters.contains(id) && lives(id));
            others.max_by_key(|(_, matched)| *matched).map(|(id, _)| id)
        };
        let Some(target) = target else { return };
        if let Err(why) = self.inner.membership.move_leader(target).await {
            tracing::warn!(node = target, why, "node: stopping without another leader");
        }
    }

    /// Stops the node when Raft or its disk has failed. Watches only the metrics that rarely change: the full
    /// metrics change with each of Raft's iterations, several times per commit.
    pub(super) async fn watch_raft(self) {
        let mut part = self.inner.raft.server_metrics();
        loop {
            tokio::select! {
                changed = part.changed() => if changed.is_err() {
                    break;
                },
                () = self.inner.stop.cancelled() => return,
            }
        }
        if self.inner.stop.is_cancelled() {
            return;
        }
        let why = match self.inner.raft.metrics().borrow_watched().running_state.clone() {
            Err(fatal) => format!("Raft has stopped: {fatal}"),
            // The sender of Raft's metrics was dropped without an error, so Raft has panicked.
            Ok(()) => "Raft has stopped without a reason".to_owned(),
        };
        self.inner.registry.fail(why);
    }

    /// Stops the node when its log has failed: later acknowledgements would not be on its disk.
    pub(super) async fn watch_log(self) {
        tokio::select! {
            error = self.inner.wal.failed() => self.inner.registry.fail(format!("the log has failed: {error}")),
            () = self.inner.stop.cancelled() => {}
        }
    }

    /// Checks repeatedly that this node is up to date.
    pub(super) async fn watch_readiness(self) {
        loop {
            tokio::select! {
                confirmed = self.read_barrier() => match confirmed {
                    Ok(()) => *self.inner.confirmed.lock() = Some(Instant::now()),
                    // The barrier has waited for a leader for its full time, and is tried again.
                    Err(unavailable) => tracing::debug!(%unavailable, "node: not up to date"),
                },
                () = self.inner.stop.cancelled() => return,
            }
            tokio::select! {
                () = tokio::time::sleep(READINESS_INTERVAL) => {}
                () = self.inner.stop.cancelled() => return,
            }
        }
    }
}
