//! Changes of the membership and of leadership, as front ends ask for them.

use futures_util::future::BoxFuture;

use super::Node;
use raft_node::MemberNews;
use raft_node::Unavailable;
use raft_node::membership::{MembershipChange, MembershipChanged, MembershipError};
use raft_node::{MemberAddress, NodeId};

impl Node {
    /// Changes the membership or the leader. Every node accepts every change; the leader makes it, one at a time.
    ///
    /// Making the same change again succeeds, so after [`MembershipError::OutcomeUnknown`] it is made again.
    pub fn change_membership(
        &self,
        change: MembershipChange,
    ) -> BoxFuture<'_, Result<MembershipChanged, MembershipError>> {
        self.inner.raft.change_membership(change)
    }

    /// Takes a node in that was started with [`RaftNodeConfig::join`](crate::RaftNodeConfig::join) and listens at `address`. It is a learner: it gets
    /// the state and all changes, takes every request, and counts for nothing until it is promoted.
    pub async fn add_member(
        &self,
        node_id: NodeId,
        address: MemberAddress,
    ) -> Result<MembershipChanged, MembershipError> {
        let change = MembershipChange::Add { node_id, address };
        self.change_membership(change).await
    }

    /// Removes a member, dead or alive, this one or another. Its id is never given again. `force`: also if the voters
    /// that remain cannot make a majority at the moment; nothing is committed then until they can.
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

    /// Makes a voter a learner. `force` as in [`Node::remove_member`].
    pub async fn demote_member(
        &self,
        node_id: NodeId,
        force: bool,
    ) -> Result<MembershipChanged, MembershipError> {
        let change = MembershipChange::Demote { node_id, force };
        self.change_membership(change).await
    }

    /// Tells the cluster where a member is found. A node whose own configured address changes does so itself when it
    /// starts.
    pub async fn set_member_address(
        &self,
        node_id: NodeId,
        address: MemberAddress,
    ) -> Result<MembershipChanged, MembershipError> {
        let change = MembershipChange::SetAddress { node_id, address };
        self.change_membership(change).await
    }

    /// Moves leadership to a voter; `None`: to the living one that has most of the log.
    pub async fn move_leader(&self, to: Option<NodeId>) -> Result<MembershipChanged, MembershipError> {
        self.change_membership(MembershipChange::MoveLeader { to }).await
    }

    /// Returns the condition of the members by the leader's word: how much of the log each lacks, and its disk report.
    pub fn members_news(&self) -> BoxFuture<'_, Result<Vec<MemberNews>, Unavailable>> {
        self.inner.raft.members_news()
    }

    /// The position in the log of the entry that set the membership: it grows with every change.
    pub fn membership_index(&self) -> u64 {
        self.inner.raft.membership_index()
    }

    /// Returns whether this node has learnt that it was removed from the cluster. It has failed then, see [`Node::failed`].
    pub fn was_removed(&self) -> bool {
        self.inner.raft.was_removed()
    }
}
