//! Znodes as they are in the tree of another server, and the steps that copy them.

use serde::{Deserialize, Serialize};

use crate::model::acl::Acl;
use crate::model::data::{Data, bytes_alone};
use crate::model::path::ZPath;
use crate::model::stat::Kind;

/// Maximum number of steps of one command, and of znodes on a page. Both block the apply loop.
pub const MAX_MIRRORED: usize = 1_000;

/// One step towards the other tree. Idempotent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MirrorStep {
    /// Makes the znode as given, and creates it if necessary, below an existing parent. Quotas do not apply, because the other server has accepted
    /// it.
    Put(Mirrored),
    /// Removes the znode, which has no children.
    Remove {
        /// The znode.
        path: ZPath,
    },
}

impl MirrorStep {
    /// Returns the path of the znode.
    pub fn path(&self) -> &ZPath {
        match self {
            Self::Put(znode) => &znode.path,
            Self::Remove { path } => path,
        }
    }
}

/// Znode of another server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mirrored {
    /// The path.
    pub path: ZPath,
    /// Data of the znode. Null is marked elsewhere: see `op_encoding.rs`.
    #[serde(with = "bytes_alone")]
    pub data: Data,
    /// Exact access control list. Entries with unknown schemes are kept, and match no caller.
    pub acl: Acl,
    /// Kind of the znode.
    pub kind: MirroredKind,
    /// Number of times that the data was replaced.
    pub version: i32,
    /// Number of times that the list was replaced.
    pub aversion: i32,
    /// Time of creation in milliseconds since 1970.
    pub ctime_ms: u64,
    /// Time of the last change of the data in milliseconds since 1970.
    pub mtime_ms: u64,
    /// Number of children that were ever created, which is the number of the next sequential child. `cversion` follows from it.
    pub creations: u64,
}

/// Kind of a znode of another server: those that no session owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MirroredKind {
    /// Stays until it is deleted.
    Persistent,
    /// Swept some time after the end of its last child.
    Container,
    /// Swept when it has no children and its data was not replaced for this time in milliseconds.
    Ttl(u64),
}

impl MirroredKind {
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Persistent => Kind::Persistent,
            Self::Container => Kind::Container,
            Self::Ttl(ttl_ms) => Kind::Ttl(ttl_ms),
        }
    }
}
