//! Znodes as they are in the tree of another server, and the steps that copy them.

use serde::{Deserialize, Serialize};

use crate::model::acl::Acl;
use crate::model::data::{Data, bytes_alone};
use crate::model::path::ZPath;
use crate::model::stat::Kind;

/// How many steps one command may have, and how many znodes a page shows: nothing else is applied meanwhile.
pub const MAX_MIRRORED: usize = 1_000;

/// One step towards the other tree. To take it twice is to take it once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MirrorStep {
    /// The znode is as given from now on; it is created if need be, below a parent that exists. Quotas stop nobody here:
    /// what is there is there.
    Put(Mirrored),
    /// The znode, which has no children, is gone from now on.
    Remove {
        /// Which.
        path: ZPath,
    },
}

impl MirrorStep {
    /// The znode that it is about.
    pub fn path(&self) -> &ZPath {
        match self {
            Self::Put(znode) => &znode.path,
            Self::Remove { path } => path,
        }
    }
}

/// A znode as it is elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mirrored {
    /// Where.
    pub path: ZPath,
    /// Its data. Null stands in another place: see `written.rs`.
    #[serde(with = "bytes_alone")]
    pub data: Data,
    /// Its list, word for word: entries of schemes that mean nothing here are kept, and match nobody.
    pub acl: Acl,
    /// What decides when it goes.
    pub kind: MirroredKind,
    /// How often its data was replaced.
    pub version: i32,
    /// How often its list was replaced.
    pub aversion: i32,
    /// When it was created, in milliseconds since 1970.
    pub ctime_ms: u64,
    /// When its data was last replaced, likewise.
    pub mtime_ms: u64,
    /// How many children were ever created: the number of the next sequential one. `cversion` follows from it.
    pub creations: u64,
}

/// The kinds of znodes that can be brought from elsewhere: those that no session owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MirroredKind {
    /// Lives until it is deleted.
    Persistent,
    /// Swept some time after its last child has gone.
    Container,
    /// Swept when it has no children and its data was not replaced for so many milliseconds.
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
