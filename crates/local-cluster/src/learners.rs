//! Adding a node to a cluster on this machine: configures it, starts it, and adds it as a learner.

use raft_node::{MemberAddress, NodeId};

use super::members::{ChangeResult, Members};
use super::{LocalCluster, START_TIMEOUT};

impl LocalCluster {
    /// Adds a node as a learner; without an id, under the next free one. Returns when the node serves.
    pub async fn add_learner(&mut self, id: Option<NodeId>) -> anyhow::Result<(NodeId, ChangeResult)> {
        let mut members = self.members()?;
        let id = match id {
            Some(id) => id,
            None => members.next_id().await?,
        };
        // Continue an addition that was interrupted before.
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

    /// Returns a client for membership changes.
    pub fn members(&self) -> anyhow::Result<Members> {
        Ok(Members::at(&self.live_http_addresses()?).with(self.credentials().clone()))
    }
}
