//! Condition of the node as a member of its cluster: what it knows, and whether it can serve.

use std::io;
use std::time::SystemTime;

use futures_util::future::BoxFuture;
use raft_log::FileSizes;
use raft_node::{ClusterStatus, DiskReport, Followers, NodeId, SnapshotMade, Unavailable};

use super::Node;

impl Node {
    /// Returns what this node knows about the cluster.
    pub fn status(&self) -> ClusterStatus {
        self.inner.raft.status()
    }

    /// Returns when the certificate that this node shows to its peers expires; `None` without TLS.
    pub fn certificate_expiry(&self) -> Option<SystemTime> {
        self.inner.raft.certificate_expiry()
    }

    /// Returns whether this node leads, as far as it knows.
    pub fn leads(&self) -> bool {
        self.inner.raft.leads()
    }

    /// Returns the term in which this node leads, for all that it knows.
    pub fn leads_in(&self) -> Option<u64> {
        self.inner.raft.leads_in()
    }

    /// Returns how many members follow this node, and how closely; `None` if it does not lead.
    pub fn followers(&self) -> Option<Followers> {
        self.inner.raft.followers()
    }

    /// Returns where this node keeps its log and its snapshots, and how large they are. Waits for the disk.
    pub fn file_sizes(&self) -> io::Result<FileSizes> {
        self.inner.raft.file_sizes()
    }

    /// Returns the number of the latest start of a member's data directory that this node has on its disk; 0 without one.
    pub fn knows_start_of(&self, node: NodeId) -> u64 {
        self.inner.raft.knows_start_of(node)
    }

    /// Returns the last committed entry that a member has acknowledged to this node.
    #[cfg(feature = "simulation")]
    pub fn knows_committed_by(&self, node: NodeId) -> u64 {
        self.inner.raft.knows_committed_by(node)
    }

    /// Returns the last entry of this node's log.
    #[cfg(feature = "simulation")]
    pub fn log_end(&self) -> u64 {
        self.inner.raft.log_end()
    }

    /// Returns what this node sees of its own disk.
    pub fn disk_report(&self) -> DiskReport {
        self.inner.raft.disk_report()
    }

    /// Returns why this node cannot serve now; `None` if it can.
    pub fn not_ready(&self) -> Option<String> {
        self.inner.raft.not_ready()
    }

    /// Returns an error if this node serves nobody: it cannot go on, or its state differs from that of the others.
    pub fn serving(&self) -> Result<(), Unavailable> {
        self.inner.raft.serving()
    }

    /// Returns when this node is cut off: a request that waits here for a leader would not complete.
    pub async fn cut_off(&self) {
        self.inner.raft.cut_off().await;
    }

    /// Returns when this node serves nobody, because its state differs from that of the others.
    pub async fn distrusted(&self) {
        self.inner.raft.distrusted().await;
    }

    /// Waits until this node has applied all that was committed anywhere when this was called. A
    /// [`Node::read`] afterwards is linearizable.
    pub async fn read_barrier(&self) -> Result<(), Unavailable> {
        self.inner.raft.read_barrier().await
    }

    /// Waits until this node has caught up with a leader once since it was started. A [`Node::read`] afterwards is not older
    /// than what any node had shown to anybody before this one was started, itself in an earlier run above all.
    pub async fn caught_up_once(&self) -> Result<(), Unavailable> {
        self.inner.raft.caught_up_once().await
    }

    /// Writes a snapshot of what this node has applied, and shortens its log; waits until it is complete. If nothing
    /// was applied since the newest one, that is the answer.
    pub async fn make_snapshot(&self) -> Result<SnapshotMade, Unavailable> {
        self.inner.raft.make_snapshot().await
    }

    /// Returns whether [`Node::stop`] was called or the node has failed: nothing is applied here any more, and clients must not try again
    /// here.
    pub fn is_stopping(&self) -> bool {
        self.inner.raft.is_stopping()
    }

    /// Waits until the node cannot go on: its disk failed, or its peers refused it; returns the reason. Never
    /// returns on a healthy node.
    pub fn failed(&self) -> BoxFuture<'_, String> {
        Box::pin(self.inner.raft.failed())
    }
}
