//! A znode as it stands in a snapshot: all of it but what follows from others (its place in the slab, its
//! children, its share of the digest).

use alloc::boxed::Box;

use serde::{Deserialize, Serialize};

use crate::ids::{Data, Zxid};
use crate::tree::node::{Family, Kind, Node, NodeIndex, Owner};

/// See the module. A node is told from the others by its index at the time of the snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ZnodeRecord {
    pub(crate) index: NodeIndex,
    pub(crate) parent: NodeIndex,
    pub(crate) name: Box<str>,
    pub(crate) data: Data,
    owner: Owner,
    czxid: Zxid,
    mzxid: Zxid,
    pzxid: Zxid,
    ctime_ms: u64,
    mtime_ms: u64,
    version: i32,
    pub(crate) creations: u64,
    emptied_at_ms: u64,
}

impl ZnodeRecord {
    /// The record of the node that lies at `index`.
    pub(crate) fn of(index: NodeIndex, node: &Node) -> Self {
        Self {
            index,
            parent: node.parent,
            name: node.name.clone(),
            data: node.data.clone(),
            owner: node.owner,
            czxid: node.czxid,
            mzxid: node.mzxid,
            pzxid: node.pzxid(),
            ctime_ms: node.ctime_ms,
            mtime_ms: node.mtime_ms,
            version: node.version,
            creations: node.creations(),
            emptied_at_ms: node.family.as_ref().map_or(0, |family| family.emptied_at_ms),
        }
    }

    /// Whether it neither ends with a session nor is swept.
    pub(crate) fn is_persistent(&self) -> bool {
        self.owner.kind() == Kind::Persistent
    }

    /// The node, still without its children and its share of the digest.
    pub(crate) fn into_node(self) -> Node {
        let family = (self.creations > 0).then(|| {
            Box::new(Family {
                pzxid: self.pzxid,
                creations: self.creations,
                emptied_at_ms: self.emptied_at_ms,
                children: Default::default(),
            })
        });
        Node {
            name: self.name,
            data: self.data,
            parent: self.parent,
            version: self.version,
            czxid: self.czxid,
            mzxid: self.mzxid,
            ctime_ms: self.ctime_ms,
            mtime_ms: self.mtime_ms,
            owner: self.owner,
            content: 0,
            family,
        }
    }
}
