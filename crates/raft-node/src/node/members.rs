//! Members of the cluster, and changes of the membership.

use std::collections::BTreeMap;
use std::io;

use futures_util::future::BoxFuture;
use openraft::async_runtime::watch::WatchReceiver;
use raft_log::SnapshotFile;

use super::RaftNode;
use crate::disk_health::report::MemberNews;
use crate::error::Unavailable;
use crate::ids::{MemberAddress, NodeId};
use crate::membership::{MembershipChange, MembershipChanged, MembershipError};
use crate::storage::log_entry::decode_membership;

/// Member of the cluster at the end of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotMember {
    /// Id.
    pub node_id: NodeId,
    /// Addresses.
    pub address: MemberAddress,
    /// Set if it votes.
    pub is_voter: bool,
}

impl SnapshotMember {
    /// Returns the members at the end of a snapshot.
    pub fn all_of(file: &SnapshotFile) -> io::Result<Vec<Self>> {
        let stored = decode_membership(&file.meta().membership)?.membership;
        let voters: Vec<NodeId> = stored.voter_ids().collect();
        let members = stored.nodes().map(|(node_id, member)| Self {
            node_id: *node_id,
            address: member.address.clone(),
            is_voter: voters.contains(node_id),
        });
        Ok(members.collect())
    }
}

impl RaftNode {
    /// Changes the membership or the leader. Every node accepts every change and sends it to the leader,
    /// which makes one at a time.
    ///
    /// A repeated change succeeds, so after [`MembershipError::OutcomeUnknown`] the caller should repeat it.
    // Boxed, so that it is compiled in this crate alone: see `OpenedStorage::start`.
    #[inline(never)]
    pub fn change_membership(
        &self,
        change: MembershipChange,
    ) -> BoxFuture<'_, Result<MembershipChanged, MembershipError>> {
        Box::pin(async move {
            self.accepting()?;
            self.inner.leader_client.change(change).await
        })
    }

    /// Returns the condition of the members, as the leader knows it: the number of entries that each lacks,
    /// and its report about its disk.
    #[inline(never)]
    pub fn members_news(&self) -> BoxFuture<'_, Result<Vec<MemberNews>, Unavailable>> {
        let inner = &self.inner;
        Box::pin(inner.leader_client.members(&inner.disks, &inner.raft))
    }

    /// Returns the position in the log of the entry that set the membership. It grows with every change.
    pub fn membership_index(&self) -> u64 {
        let metrics = self.inner.raft.metrics();
        let set_by = *metrics.borrow_watched().membership_config.log_id();
        set_by.map_or(0, |id| id.index)
    }

    /// Returns the members by the last committed membership, with whether each votes, and the index of the
    /// entry that set it.
    pub fn committed_members(&self) -> (u64, BTreeMap<NodeId, (bool, MemberAddress)>) {
        let metrics = self.inner.raft.server_metrics();
        let committed = metrics.borrow_watched().committed_membership_config.clone();
        let voters: Vec<NodeId> = committed.voter_ids().collect();
        let members = committed
            .nodes()
            .map(|(id, member)| (*id, (voters.contains(id), member.address.clone())));
        let index = committed.log_id().as_ref().map_or(0, |at| at.index);
        (index, members.collect())
    }

    /// Returns whether this node has learned that it was removed from the cluster. It has then failed, see
    /// [`RaftNode::failed`].
    pub fn was_removed(&self) -> bool {
        self.inner.registry.was_removed()
    }

    /// Begins to hand leadership over to `to`, and returns before that is done. Fails if `to` is not a voter
    /// or openraft has stopped.
    #[cfg(feature = "failpoints")]
    pub async fn hand_leadership_to(&self, to: NodeId) -> Result<(), String> {
        let metrics = self.inner.raft.metrics().borrow_watched().clone();
        if !metrics.membership_config.voter_ids().any(|voter| voter == to) {
            return Err(format!("node {to} is not a voter"));
        }
        let begun = self.inner.raft.trigger().transfer_leader(to).await;
        begun.map_err(|error| error.to_string())
    }
}
