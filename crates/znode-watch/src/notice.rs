//! What a watcher is told, and how it reads. How it travels is no matter of this crate.

use core::fmt;

use znode_store::{ZPath, ZnodeEventKind, Zxid};

/// What a watcher is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// What happened.
    pub kind: ZnodeEventKind,
    /// To which znode. With a recursive watch it may lie below the path that is watched.
    pub path: ZPath,
    /// At which position. For what was missed ([`crate::Watches::rearm`]) the last one that it can have been.
    pub zxid: Zxid,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, path, zxid } = self;
        match kind {
            ZnodeEventKind::Created => write!(f, "created {path} at {zxid}"),
            ZnodeEventKind::Deleted => write!(f, "deleted {path} at {zxid}"),
            ZnodeEventKind::DataChanged => write!(f, "data of {path} changed at {zxid}"),
            ZnodeEventKind::ChildrenChanged => write!(f, "children of {path} changed at {zxid}"),
        }
    }
}
