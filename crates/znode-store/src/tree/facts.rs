//! Facts of a node that a change replaces and an undo restores.

use crate::model::acl::Acl;
use crate::model::ids::Zxid;
use crate::model::stat::EphemeralOwner;
use crate::tree::node::FamilyFacts;
use crate::tree::node_data::NodeData;

/// Own facts of a node, which a command replaces.
pub(crate) struct OwnFacts {
    pub(crate) data: NodeData,
    pub(crate) mzxid: Zxid,
    pub(crate) mtime_ms: u64,
    pub(crate) version: i32,
    pub(crate) acl: Acl,
    pub(crate) aversion: i32,
}

/// Facts of a node that [`Tree::mirror`](super::Tree::mirror) changes.
pub(crate) struct AllFacts {
    pub(crate) own: OwnFacts,
    pub(crate) ctime_ms: u64,
    pub(crate) owner: EphemeralOwner,
    pub(crate) family: FamilyFacts,
}
