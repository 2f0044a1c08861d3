//! What watches over a running node, and how it ends.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::BoxFuture;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::{Instant as _, ServerState};
use tokio::time::Instant;

use super::Node;
use crate::ids::NodeId;
use raft_log::Wal;

/// How often a node looks whether it can still serve, so that `readyz` need not ask for every caller.
const READINESS_INTERVAL: Duration = Duration::from_millis(500);

/// How long a node that stops waits for another one to lead. A transfer takes milliseconds; whoever is left elects one by itself.
const HAND_OVER_AT_STOP: Duration = Duration::from_millis(600);

impl Node {
    /// Waits until the node cannot go on: its disk failed, or its peers refused it; returns the reason. Never
    /// returns on a healthy node.
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

    /// Hands leadership to another member if this node leads, and stops. What waits here is answered
    /// `Unavailable` or `OutcomeUnknown`.
    ///
    /// Peers and clients cannot hold it up. A disk that hangs can: then [`Node::stops_at`] says so.
    // Boxed, so that it is compiled in this crate alone: see `start_keeping`.
    #[inline(never)]
    pub fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.stop_here())
    }

    /// What a node that stops is waiting for. `None`: it does not stop, or has stopped.
    pub fn stops_at(&self) -> Option<&'static str> {
        *self.inner.stops_at.lock()
    }

    async fn stop_here(&self) {
        let waits_for = |what| *self.inner.stops_at.lock() = Some(what);
        waits_for("another leader");
        if tokio::time::timeout(HAND_OVER_AT_STOP, self.hand_over())
            .await
            .is_err()
        {
            tracing::warn!("stopping without another leader: none has taken over in time");
        }
        self.inner.stop.cancel();
        waits_for("the node's tasks");
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
        waits_for("Raft, and its writes to the log");
        if let Err(error) = self.inner.raft.shutdown().await {
            tracing::warn!(%error, "raft did not stop in order");
        }
        self.inner.replica.calls.stop();
        self.inner.replica.hub.stop();
        self.inner.replica.stop_tap();
        waits_for("the lock history's disk");
        if let Some(history) = self.inner.history.clone() {
            let stopped = crate::blocking::run(move || history.stop()).await;
            if let Err(error) = stopped {
                tracing::warn!(%error, "the lock history did not end in order");
            }
        }
        waits_for("the log's disk");
        let storage = self.inner.storage.lock().take();
        if let Some(storage) = storage {
            let closed = crate::blocking::run(move || storage.close()).await;
            if let Ok(Err(error)) = closed {
                tracing::warn!(%error, "the log did not end in order");
            }
        }
        *self.inner.stops_at.lock() = None;
    }

    /// Moves leadership to the living member that has most of the log, if this node leads.
    async fn hand_over(&self) {
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
            tracing::warn!(node = target, why, "stopping without another leader");
        }
    }

    /// Ends the node when Raft or its disk has failed. It waits for the end of what rarely changes: all of Raft's numbers change with
    /// each of its turns, several for a commit.
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
            Err(fatal) => format!("raft has stopped: {fatal}"),
            // Whoever tells of Raft's state has gone without a word: it has panicked.
            Ok(()) => "raft has ended without a reason".to_owned(),
        };
        self.inner.gate.fail(why);
    }

    /// Ends the node when its log takes nothing more: what it would acknowledge from now on is not on its disk.
    pub(super) async fn watch_log(self, log: Wal) {
        tokio::select! {
            error = log.failed() => self.inner.gate.fail(format!("the log has failed: {error}")),
            () = self.inner.stop.cancelled() => {}
        }
    }

    /// Answers all who wait as soon as the node has failed: nobody would any more, and they can go to another node.
    pub(super) async fn refuse_when_failed(self) {
        tokio::select! {
            _ = self.failed() => {
                self.inner.replica.calls.stop();
                self.inner.replica.hub.stop();
            }
            () = self.inner.stop.cancelled() => {}
        }
    }

    /// Finds out again and again whether this node is up to date.
    pub(super) async fn watch_readiness(self) {
        loop {
            tokio::select! {
                confirmed = self.read_barrier() => match confirmed {
                    Ok(()) => *self.inner.confirmed.lock() = Some(Instant::now()),
                    // The barrier has waited for a leader as long as makes sense, and is tried again.
                    Err(unavailable) => tracing::debug!(%unavailable, "not up to date"),
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

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::config::NodeConfig;
    use crate::ids::MemberAddress;

    #[tokio::test]
    async fn a_node_whose_raft_has_ended_has_failed() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = listener.local_addr().unwrap().to_string();
        let address = MemberAddress {
            peer,
            http: "node-1".to_owned(),
        };
        let dir = TempDir::new().unwrap();
        let config = NodeConfig::new(1, "test", BTreeMap::from([(1, address)]), dir.path());
        let node = Node::start_on(config, listener).await.unwrap();
        // It has come to be, so nobody else waits for its Raft.
        let patience = Duration::from_secs(60);
        let ready = async {
            while node.read_barrier().await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(patience, ready).await.unwrap();
        node.inner.raft.shutdown().await.unwrap();
        let failure = tokio::time::timeout(patience, node.failed()).await.unwrap();
        assert!(failure.contains("raft has stopped"), "{failure}");
        node.stop().await;
    }
}
