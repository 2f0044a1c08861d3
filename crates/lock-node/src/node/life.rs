//! Stop of a running node.

use futures_util::future::BoxFuture;

use raft_node::replicated_state::ReplicatedState;

use super::Node;

impl Node {
    /// Transfers leadership to another member if this node leads, and stops the node. Waiting requests get `Unavailable` or `OutcomeUnknown`.
    ///
    /// Peers and clients cannot delay the stop. A disk that hangs can; [`Node::stops_at`] reports it.
    // Boxed, so that it is compiled in this crate alone: see `start_keeping`.
    #[inline(never)]
    pub fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.stop_here())
    }

    /// Returns the step that a stopping node waits for, or `None` if it is not stopping or has stopped.
    pub fn stops_at(&self) -> Option<&'static str> {
        *self.inner.stops_at.lock()
    }

    async fn stop_here(&self) {
        let inner = &self.inner;
        let waits_for = |what| *inner.stops_at.lock() = Some(what);
        waits_for("another leader");
        inner.raft.hand_over().await;
        waits_for("the node's tasks");
        inner.raft.end_tasks().await;
        waits_for("Raft, and its writes to the log");
        inner.raft.shut_down().await;
        inner.replica.end_waits();
        inner.replica.observers.end_history();
        waits_for("the lock history's disk");
        if let Some(history) = inner.history.clone() {
            let stopped = raft_node::blocking::run(move || history.stop()).await;
            if let Err(error) = stopped {
                tracing::warn!(%error, "the lock history did not stop cleanly");
            }
        }
        waits_for("the log's disk");
        inner.raft.close().await;
        *inner.stops_at.lock() = None;
    }

    /// Ends all waits as soon as the node has failed, so that their clients retry on another node. Otherwise they would never be answered.
    pub(super) async fn refuse_when_failed(self) {
        tokio::select! {
            _ = self.failed() => {
                self.inner.replica.end_waits();
            }
            () = self.inner.raft.stop_token().cancelled() => {}
        }
    }
}
