//! One more node for a cluster on this machine: configured, started, and taken in without a vote.

use raft_node::{MemberAddress, NodeId};

use super::members::{Changed, Members};
use super::{LocalCluster, START_TIMEOUT};

impl LocalCluster {
    /// Adds a node, which gets everything and has no vote; without an id, under the next one. Returns when it serves.
    pub async fn add_learner(&mut self, id: Option<NodeId>) -> anyhow::Result<(NodeId, Changed)> {
        let mut members = self.members()?;
        let id = match id {
            Some(id) => id,
            None => members.next_id().await?,
        };
        // One whose adding was broken off is gone on with.
        let node = match self.node(id) {
            Ok(node) => node.clone(),
            Err(_) => self.configure_new(id)?,
        };
        if self.pid(id)?.is_none() {
            self.start(id)?;
            self.wait_listening(id, START_TIMEOUT).await?;
        }
        let address = MemberAddress {
            peer: node.peer.clone(),
            http: node.http.clone(),
        };
        let added = members.add(id, &address).await?;
        self.wait_ready(&[id], START_TIMEOUT).await?;
        Ok((id, added))
    }

    /// For changes of its members.
    pub fn members(&self) -> anyhow::Result<Members> {
        Ok(Members::at(&self.living_http()?).with(self.credentials().clone()))
    }
}
