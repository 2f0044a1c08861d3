//! End of a running node.

use futures_util::future::BoxFuture;

use raft_node::replicated_state::ReplicatedState;

use super::Node;

impl Node {
    /// Hands leadership to another member if this node leads, and stops. What waits here is answered
    /// `Unavailable` or `OutcomeUnknown`.
    ///
    /// Peers and clients cannot hold it up. A disk that hangs can: then [`Node::stops_at`] says so.
    // Boxed, so that it is compiled in this crate alone: see `start_keeping`.
    #[inline(never)]
    pub fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.stop_here())
    }

    /// Returns what a stopping node waits for. `None`: it does not stop, or has stopped.
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
                tracing::warn!(%error, "the lock history did not end in order");
            }
        }
        waits_for("the log's disk");
        inner.raft.close().await;
        *inner.stops_at.lock() = None;
    }

    /// Answers all who wait as soon as the node has failed: nobody would any more, and they can go to another node.
    pub(super) async fn refuse_when_failed(self) {
        tokio::select! {
            _ = self.failed() => {
                self.inner.replica.end_waits();
            }
            () = self.inner.raft.stop_token().cancelled() => {}
        }
    }
}
