//! Changes of the membership and of leadership, for front ends.

use futures_util::future::BoxFuture;

use super::Node;
use raft_node::MemberNews;
use raft_node::Unavailable;
use raft_node::membership::{MembershipChange, MembershipChanged, MembershipError};
use raft_node::{MemberAddress, NodeId};

impl Node {
    /// Changes the membership or the leader. Every node accepts every change; the leader makes one change at a time.
    ///
    /// A change that is already made succeeds again, so after [`MembershipError::OutcomeUnknown`] the caller repeats it.
    pub fn change_membership(
        &self,
        change: MembershipChange,
    ) -> BoxFuture<'_, Result<MembershipChanged, MembershipError>> {
        self.inner.raft.change_membership(change)
    }

    /// Adds a node that was started with [`RaftNodeConfig::join`](crate::RaftNodeConfig::join) and listens at `address`. It becomes a learner: it
    /// receives the state and all changes, and accepts every request, but has no vote until it is promoted.
    pub async fn add_member(
        &self,
        node_id: NodeId,
        address: MemberAddress,
    ) -> Result<MembershipChanged, MembershipError> {
        let change = MembershipChange::Add { node_id, address };
        self.change_membership(change).await
    }

    /// Removes a member, dead or alive, this one or another. Its id can never be used again. With `force` the member is removed even if the live
    /// voters among the rest are currently no majority; then nothing is committed until they are.
    pub async fn remove_member(
        &self,
        node_id: NodeId,
        force: bool,
    ) -> Result<MembershipChanged, MembershipError> {
        let change = MembershipChange::Remove { node_id, force };
        self.change_membership(change).await
    }

    /// Makes a learner that has caught up a voter.
    pub async fn promote_member(&self, node_id: NodeId) -> Result<MembershipChanged, MembershipError> {
        let change = MembershipChange::Promote { node_id };
        self.change_membership(change).await
    }

    /// Makes a voter a learner. `force` has the meaning as in [`Node::remove_member`].
    pub async fn demote_member(
        &self,
        node_id: NodeId,
        force: bool,
    ) -> Result<MembershipChanged, MembershipError> {
        let change = MembershipChange::Demote { node_id, force };
        self.change_membership(change).await
    }

    /// Changes the address of a member in the membership. A node whose own configured address has changed does this itself when it starts.
    pub async fn set_member_address(
        &self,
        node_id: NodeId,
        address: MemberAddress,
    ) -> Result<MembershipChanged, MembershipError> {
        let change = MembershipChange::SetAddress { node_id, address };
        self.change_membership(change).await
    }

    /// Transfers leadership to a voter, or with `None` to the live voter that has most of the log.
    pub async fn move_leader(&self, to: Option<NodeId>) -> Result<MembershipChanged, MembershipError> {
        self.change_membership(MembershipChange::MoveLeader { to }).await
    }

    /// Returns the condition of the members as the leader reports it: how much of the log each one lacks, and its disk report.
    pub fn members_news(&self) -> BoxFuture<'_, Result<Vec<MemberNews>, Unavailable>> {
        self.inner.raft.members_news()
    }

    /// Returns the log index of the entry that set the membership. It grows with every change.
    pub fn membership_index(&self) -> u64 {
        self.inner.raft.membership_index()
    }

    /// Returns whether this node has learnt that it was removed from the cluster. It has then failed; see [`Node::failed`].
    pub fn was_removed(&self) -> bool {
        self.inner.raft.was_removed()
    }
}
