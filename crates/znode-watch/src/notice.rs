//! Notices, and their text. Delivery is not part of this crate.

use core::fmt;

use znode_store::{ZPath, ZnodeEventKind, Zxid};

/// Notification of one watcher about one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Kind of the event.
    pub kind: ZnodeEventKind,
    /// Path of the changed znode. A recursive watch may be on an ancestor of it.
    pub path: ZPath,
    /// Position of the event. For a missed event ([`crate::Watches::rearm`]) the latest possible
    /// one.
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
