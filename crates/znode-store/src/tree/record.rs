//! Record of a znode in a snapshot. It has all facts except those that follow from other records: the slot, the children, the share of the digest.

use alloc::boxed::Box;

use ecow::EcoString;
use serde::{Deserialize, Serialize};

use crate::model::acl::Acl;
use crate::model::damage::Damage;
use crate::model::data::{Data, bytes_alone};
use crate::model::ids::Zxid;
use crate::model::stat::EphemeralOwner;
use crate::tree::acls::Acls;
use crate::tree::index::NodeIndex;
use crate::tree::node::{Family, FamilyFacts, Node, PathHash};

/// Record of a znode. Its index at the time of the snapshot identifies it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ZnodeRecord {
    pub(crate) index: NodeIndex,
    pub(crate) parent: NodeIndex,
    pub(crate) name: EcoString,
    /// Data. Null is marked outside the records: see [`crate::snapshot`].
    #[serde(with = "bytes_alone")]
    pub(crate) data: Data,
    acl: Acl,
    pub(crate) owner: EphemeralOwner,
    pub(crate) czxid: Zxid,
    mzxid: Zxid,
    ctime_ms: u64,
    mtime_ms: u64,
    version: i32,
    aversion: i32,
    pub(crate) family: Option<FamilyFacts>,
}

impl ZnodeRecord {
    /// Returns the record of the node at `index`.
    pub(crate) fn of(index: NodeIndex, node: &Node, acls: &Acls) -> Self {
        Self {
            index,
            parent: node.parent,
            name: node.name.clone(),
            data: node.data.to_data(),
            acl: acls.get(node.acl).clone(),
            owner: node.owner,
            czxid: node.czxid,
            mzxid: node.mzxid,
            ctime_ms: node.ctime_ms,
            mtime_ms: node.mtime_ms,
            version: node.version,
            aversion: node.aversion,
            family: node.family.as_ref().map(|family| family.facts),
        }
    }

    /// Returns the position of the last change that it contains.
    pub(crate) fn newest(&self) -> Zxid {
        let family = self.family.map_or(self.czxid, |family| family.pzxid);
        self.czxid.max(self.mzxid).max(family)
    }

    /// Returns the number of children that were ever created below it.
    pub(crate) fn creations(&self) -> u64 {
        self.family.map_or(0, |family| family.creations)
    }

    /// Returns the node, still without its children.
    pub(crate) fn into_node(self, acls: &mut Acls) -> Result<Node, Damage> {
        if !self.owner.is_legal() {
            return Err("a znode in it is of no kind");
        }
        Ok(Node {
            name: self.name,
            data: self.data.into(),
            parent: self.parent,
            version: self.version,
            acl: acls.take(&self.acl),
            aversion: self.aversion,
            czxid: self.czxid,
            mzxid: self.mzxid,
            ctime_ms: self.ctime_ms,
            mtime_ms: self.mtime_ms,
            owner: self.owner,
            family: self.family.map(|facts| {
                Box::new(Family {
                    // The path is known only when the tree is complete.
                    path: PathHash::default(),
                    facts,
                    children: Default::default(),
                })
            }),
        })
    }
}
