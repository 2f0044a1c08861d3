//! Znode in memory. A million of them must fit into a small machine. So facts that only parents need are stored apart, and derived facts are not
//! stored.

use alloc::boxed::Box;

use ecow::EcoString;
use serde::{Deserialize, Serialize};

use crate::model::ids::{SessionId, Zxid};
use crate::model::path::SHORT_PATH_BYTES;
use crate::model::stat::{EphemeralOwner, Kind, Stat};
use crate::stable_hash;
use crate::tree::acls::AclIndex;
use crate::tree::children::Children;
use crate::tree::index::NodeIndex;
use crate::tree::node_data::NodeData;

/// Hash of a node's path, which is computed once for several digests, with the length of the path.
///
/// A path of at most [`SHORT_PATH_BYTES`] is hashed as one text. The hash of a longer one is made of its parent's hash
/// and the name, so that the hashes of a deep tree cost no more than the names in it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PathHash {
    hash: u64,
    /// Length in bytes.
    pub(crate) length: usize,
}

impl PathHash {
    pub(crate) fn of(path: &str) -> Self {
        match path.len() <= SHORT_PATH_BYTES {
            true => Self {
                hash: stable_hash::of_bytes(path.as_bytes()),
                length: path.len(),
            },
            false => Self::of_long(path),
        }
    }

    #[cold]
    fn of_long(path: &str) -> Self {
        let end = memchr::memrchr(b'/', &path.as_bytes()[..=SHORT_PATH_BYTES]).expect("a path is absolute");
        let above = Self::of(if end == 0 { "/" } else { &path[..end] });
        path[end + 1..].split('/').fold(above, Self::child_beyond)
    }

    /// Returns the hash of a child's path of more than [`SHORT_PATH_BYTES`].
    fn child_beyond(self, name: &str) -> Self {
        Self {
            hash: stable_hash::of_bytes_after(self.hash, name.as_bytes()),
            length: self.child_length(name),
        }
    }

    /// Returns the length of a child's path.
    pub(crate) fn child_length(self, name: &str) -> usize {
        // Only the root's own path ends with a slash.
        self.length + name.len() + usize::from(self.length > 1)
    }

    /// Returns the hash of the path of the child `name` of a node at a path of more than [`SHORT_PATH_BYTES`].
    pub(crate) fn child_of_long(self, name: &str) -> Self {
        debug_assert!(self.length > SHORT_PATH_BYTES);
        self.child_beyond(name)
    }
}

/// Znode in the slab.
#[derive(Debug)]
pub(crate) struct Node {
    /// Name. Most names have at most fifteen bytes, which this type stores without an allocation.
    pub(crate) name: EcoString,
    pub(crate) data: NodeData,
    pub(crate) parent: NodeIndex,
    pub(crate) version: i32,
    pub(crate) acl: AclIndex,
    pub(crate) aversion: i32,
    pub(crate) czxid: Zxid,
    pub(crate) mzxid: Zxid,
    pub(crate) ctime_ms: u64,
    pub(crate) mtime_ms: u64,
    pub(crate) owner: EphemeralOwner,
    /// Family; `None` while the node never had a child.
    pub(crate) family: Option<Box<Family>>,
}

/// Children of a node, and facts about former children.
#[derive(Debug)]
pub(crate) struct Family {
    /// Hash of the path of the node, for the digest.
    pub(crate) path: PathHash,
    pub(crate) facts: FamilyFacts,
    pub(crate) children: Children,
}

/// Facts of a parent that do not follow from its present children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FamilyFacts {
    pub(crate) pzxid: Zxid,
    /// Number of children that were ever created, which is the next sequence number. Deletes do not change it.
    pub(crate) creations: u64,
    /// Time of the end of the last child; meaningless while there are children.
    pub(crate) emptied_at_ms: u64,
}

impl Node {
    /// Returns a new node without children.
    pub(crate) fn new(
        name: &str,
        parent: NodeIndex,
        kind: Kind,
        data: NodeData,
        acl: AclIndex,
        zxid: Zxid,
        now_ms: u64,
    ) -> Self {
        Self {
            name: name.into(),
            data,
            parent,
            version: 0,
            acl,
            aversion: 0,
            czxid: zxid,
            mzxid: zxid,
            ctime_ms: now_ms,
            mtime_ms: now_ms,
            owner: EphemeralOwner::from(kind),
            family: None,
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.owner.kind()
    }

    /// Returns the owner of an ephemeral node.
    pub(crate) fn session(&self) -> Option<SessionId> {
        self.owner.session()
    }

    pub(crate) fn num_children(&self) -> usize {
        self.family.as_ref().map_or(0, |family| family.children.len())
    }

    /// Returns the number of children that were ever created below this node.
    pub(crate) fn creations(&self) -> u64 {
        self.family.as_ref().map_or(0, |family| family.facts.creations)
    }

    pub(crate) fn pzxid(&self) -> Zxid {
        self.family
            .as_ref()
            .map_or(self.czxid, |family| family.facts.pzxid)
    }

    /// Returns the time at which the container lost its last child; `None` if it never had one, has some, or is no container.
    pub(crate) fn emptied_at_ms(&self) -> Option<u64> {
        match &self.family {
            Some(family) if family.facts.creations > 0 && self.kind() == Kind::Container => {
                (family.children.len() == 0).then_some(family.facts.emptied_at_ms)
            }
            _ => None,
        }
    }

    /// Returns the end of a TTL node; `None` if it has children, or has no TTL.
    pub(crate) fn expires_at_ms(&self) -> Option<u64> {
        match self.kind() {
            Kind::Ttl(ttl_ms) if self.num_children() == 0 => Some(self.mtime_ms.saturating_add(ttl_ms)),
            _ => None,
        }
    }

    /// Returns ZooKeeper's `Stat`. Its `cversion` counts the creations and deletions of children, which is twice the creations minus the present
    /// children.
    pub(crate) fn stat(&self) -> Stat {
        let children = self.num_children() as u64;
        Stat {
            czxid: self.czxid,
            mzxid: self.mzxid,
            pzxid: self.pzxid(),
            ctime_ms: self.ctime_ms,
            mtime_ms: self.mtime_ms,
            version: self.version,
            cversion: self.creations().wrapping_mul(2).wrapping_sub(children) as i32,
            aversion: self.aversion,
            ephemeral_owner: self.owner,
            data_length: self.data.len() as u32,
            num_children: children as u32,
        }
    }

    /// Returns the node's own share of the tree's digest: all but its children.
    pub(crate) fn own_digest(&self, path: PathHash, acl_hash: u64) -> u64 {
        self.own_digest_with(self.data.digest(), path, acl_hash)
    }

    /// Returns the node's own share of the tree's digest, with another share of its data.
    pub(crate) fn own_digest_with(&self, data: u64, path: PathHash, acl_hash: u64) -> u64 {
        stable_hash::of_words([
            path.hash,
            data,
            acl_hash,
            self.czxid.0,
            self.mzxid.0,
            self.ctime_ms,
            self.mtime_ms,
            self.version as u64,
            self.aversion as u64,
            self.owner.to_wire() as u64,
        ])
    }

    /// Returns the share of the node's children in the tree's digest. It is separate from the node's own share, because a change of a
    /// child would otherwise hash all data of its parent.
    pub(crate) fn family_digest(&self) -> u64 {
        // An undone creation leaves an empty family, which counts as none.
        let Some(family) = self.family.as_ref().filter(|family| !family.is_untouched()) else {
            return 0;
        };
        stable_hash::of_words([
            family.path.hash,
            family.facts.pzxid.0,
            family.facts.creations,
            family.children.len() as u64,
            self.emptied_at_ms().unwrap_or(u64::MAX),
        ])
    }

    /// Returns the facts about its children, or those of a node without children.
    pub(crate) fn family_facts(&self) -> FamilyFacts {
        let none = FamilyFacts {
            pzxid: self.czxid,
            creations: 0,
            emptied_at_ms: 0,
        };
        self.family.as_ref().map_or(none, |family| family.facts)
    }

    /// Removes and returns the family of the node at `path`. A node has none before its first child; then it makes one.
    pub(crate) fn take_family<'p>(&mut self, path: impl FnOnce() -> &'p str) -> Box<Family> {
        let facts = self.family_facts();
        self.family.take().unwrap_or_else(|| {
            Box::new(Family {
                path: PathHash::of(path()),
                facts,
                children: Children::default(),
            })
        })
    }
}

impl Family {
    /// Returns whether the node never had a child.
    fn is_untouched(&self) -> bool {
        self.facts.creations == 0 && self.children.len() == 0
    }
}

/// Bound on the size of a node: one kilobyte more per ten znodes is a hundred megabytes per million.
const _: () = assert!(size_of::<Option<Node>>() <= 96);
