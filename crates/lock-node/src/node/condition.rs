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

    /// Returns the term in which this node leads, as far as it knows.
    pub fn leads_in(&self) -> Option<u64> {
        self.inner.raft.leads_in()
    }

    /// Returns the number of members that follow this node, and their lags; `None` if it does not lead.
    pub fn followers(&self) -> Option<Followers> {
        self.inner.raft.followers()
    }

    /// Returns the paths and the sizes of this node's log and snapshots. Blocks on the disk.
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

    /// Returns this node's report on its own disk.
    pub fn disk_report(&self) -> DiskReport {
        self.inner.raft.disk_report()
    }

    /// Returns the reason for which this node cannot serve now, or `None` if it can.
    pub fn not_ready(&self) -> Option<String> {
        self.inner.raft.not_ready()
    }

    /// Returns an error if this node serves no request: it has failed, or its state differs from that of the other members.
    pub fn serving(&self) -> Result<(), Unavailable> {
        self.inner.raft.serving()
    }

    /// Waits until this node is cut off from the leader, so that a request that waits here for a leader would not complete.
    pub async fn cut_off(&self) {
        self.inner.raft.cut_off().await;
    }

    /// Waits until this node serves no request because its state differs from that of the other members.
    pub async fn distrusted(&self) {
        self.inner.raft.distrusted().await;
    }

    /// Waits until this node has applied everything that was committed in the cluster at the time of the call. A later [`Node::read`] is
    /// linearizable.
    pub async fn read_barrier(&self) -> Result<(), Unavailable> {
        self.inner.raft.read_barrier().await
    }

    /// Waits until this node has caught up with a leader once since its start. A later [`Node::read`] is not older than anything that any node showed
    /// to a client before this start. Above all that includes this node itself in an earlier run.
    pub async fn caught_up_once(&self) -> Result<(), Unavailable> {
        self.inner.raft.caught_up_once().await
    }

    /// Writes a snapshot of the state of this node, shortens its log, and waits until the snapshot is complete. If nothing was applied since the
    /// newest snapshot, returns that one.
    pub async fn make_snapshot(&self) -> Result<SnapshotMade, Unavailable> {
        self.inner.raft.make_snapshot().await
    }

    /// Returns whether [`Node::stop`] was called or the node has failed. Then it applies nothing any more, and clients must not retry on this node.
    pub fn is_stopping(&self) -> bool {
        self.inner.raft.is_stopping()
    }

    /// Waits until the node has failed, because its disk failed or its peers rejected it, and returns the reason. Never returns on a healthy node.
    pub fn failed(&self) -> BoxFuture<'_, String> {
        Box::pin(self.inner.raft.failed())
    }
}
