//! One znode as it lies in memory. A million of them must fit into a small machine, so what only parents
//! need is kept apart, and nothing is stored that follows from something else.

use alloc::boxed::Box;

use serde::{Deserialize, Serialize};

use crate::ids::{Data, SessionId, Zxid};
use crate::stable_hash;
use crate::stat::Stat;
use crate::tree::children::Children;

/// Where a node lies in the slab. An index is reused after its node is gone, and it is different on
/// another replica: nothing visible may depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct NodeIndex(pub(crate) u32);

impl NodeIndex {
    /// The root never moves. It is its own parent.
    pub(crate) const ROOT: NodeIndex = NodeIndex(0);
}

/// What decides when a node goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// When it is deleted.
    Persistent,
    /// When it is swept after its last child has gone.
    Container,
    /// When its session ends.
    Ephemeral(SessionId),
}

/// [`Kind`] in eight bytes, as ZooKeeper packs it into `ephemeralOwner`: a session's id is never 0 and
/// never has the highest bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner(u64);

const CONTAINER: Owner = Owner(1 << 63);

/// A znode.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: Box<str>,
    pub(crate) data: Data,
    pub(crate) parent: NodeIndex,
    pub(crate) version: i32,
    pub(crate) czxid: Zxid,
    pub(crate) mzxid: Zxid,
    pub(crate) ctime_ms: u64,
    pub(crate) mtime_ms: u64,
    pub(crate) owner: Owner,
    /// Hash of the path plus hash of the data: what of the digest is expensive to compute.
    pub(crate) content: u64,
    /// Absent while the node never had a child.
    pub(crate) family: Option<Box<Family>>,
}

/// What a node knows that has, or had, children.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) pzxid: Zxid,
    /// How many children were ever created: the next sequence number, which deletes do not move.
    pub(crate) creations: u64,
    /// When the last child went; meaningless while there are children.
    pub(crate) emptied_at_ms: u64,
    pub(crate) children: Children,
}

impl Node {
    /// A node without children that is created now.
    pub(crate) fn new(
        name: &str,
        parent: NodeIndex,
        kind: Kind,
        data: Data,
        zxid: Zxid,
        now_ms: u64,
    ) -> Self {
        Self {
            name: name.into(),
            data,
            parent,
            version: 0,
            czxid: zxid,
            mzxid: zxid,
            ctime_ms: now_ms,
            mtime_ms: now_ms,
            owner: Owner::from(kind),
            content: 0,
            family: None,
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.owner.kind()
    }

    /// The owner of an ephemeral node.
    pub(crate) fn session(&self) -> Option<SessionId> {
        match self.kind() {
            Kind::Ephemeral(session) => Some(session),
            Kind::Persistent | Kind::Container => None,
        }
    }

    pub(crate) fn num_children(&self) -> usize {
        self.family.as_ref().map_or(0, |family| family.children.len())
    }

    /// How many children were ever created below this node.
    pub(crate) fn creations(&self) -> u64 {
        self.family.as_ref().map_or(0, |family| family.creations)
    }

    pub(crate) fn pzxid(&self) -> Zxid {
        self.family.as_ref().map_or(self.czxid, |family| family.pzxid)
    }

    /// When the container lost its last child; `None` if it never had one, has some, or is no container.
    pub(crate) fn emptied_at_ms(&self) -> Option<u64> {
        match &self.family {
            Some(family) if self.kind() == Kind::Container && family.creations > 0 => {
                (family.children.len() == 0).then_some(family.emptied_at_ms)
            }
            _ => None,
        }
    }

    /// ZooKeeper's `Stat`. Its `cversion` moves at each creation and each deletion of a child, which is
    /// twice the creations less the children that are left.
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
            aversion: 0,
            ephemeral_owner: self.session(),
            data_length: self.data.len() as u32,
            num_children: children as u32,
        }
    }

    /// The node's share of the tree's digest.
    pub(crate) fn digest(&self) -> u64 {
        stable_hash::of_words(&[
            self.content,
            self.czxid.0,
            self.mzxid.0,
            self.pzxid().0,
            self.ctime_ms,
            self.mtime_ms,
            self.version as u64,
            self.creations(),
            self.num_children() as u64,
            self.owner.0,
            self.emptied_at_ms().unwrap_or(u64::MAX),
        ])
    }

    /// What a node never had before its first child.
    pub(crate) fn family_or_new(&mut self) -> &mut Family {
        let pzxid = self.czxid;
        self.family.get_or_insert_with(|| {
            Box::new(Family {
                pzxid,
                creations: 0,
                emptied_at_ms: 0,
                children: Children::default(),
            })
        })
    }
}

impl Owner {
    pub(crate) fn kind(self) -> Kind {
        match self {
            Owner(0) => Kind::Persistent,
            CONTAINER => Kind::Container,
            Owner(session) => Kind::Ephemeral(SessionId(session)),
        }
    }
}

impl From<Kind> for Owner {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Persistent => Self(0),
            Kind::Container => CONTAINER,
            Kind::Ephemeral(session) => Self(session.0),
        }
    }
}

/// One kilobyte more per ten znodes is a hundred megabytes per million.
const _: () = assert!(size_of::<Option<Node>>() <= 96);
