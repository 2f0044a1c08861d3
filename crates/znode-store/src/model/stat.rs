//! ZooKeeper's metadata of a znode.

use serde::{Deserialize, Serialize};

use crate::model::ids::{SessionId, Zxid};

/// Metadata of a znode: ZooKeeper's `Stat`, field by field
/// (<https://zookeeper.apache.org/doc/current/zookeeperProgrammers.html#sc_zkStatStructure>).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// The zxid of the change that created the node.
    pub czxid: Zxid,
    /// The zxid of the last change of its data.
    pub mzxid: Zxid,
    /// The zxid of the last creation or deletion of a child; at first the node's own czxid.
    pub pzxid: Zxid,
    /// Time of creation in milliseconds since 1970 by the leader's clock.
    pub ctime_ms: u64,
    /// Time of the last change of the data, in milliseconds since 1970 by the leader's clock.
    pub mtime_ms: u64,
    /// Number of changes of the data.
    pub version: i32,
    /// Number of changes of the set of children: one for each creation and each deletion.
    pub cversion: i32,
    /// Number of changes of the access control list.
    pub aversion: i32,
    /// Kind of the node, with its owner or TTL.
    pub ephemeral_owner: EphemeralOwner,
    /// Number of bytes of data.
    pub data_length: u32,
    /// Number of children.
    pub num_children: u32,
}

/// Kind of a znode in eight bytes: ZooKeeper's `ephemeralOwner`.
///
/// | value | node |
/// |---|---|
/// | 0 | persistent |
/// | highest bit clear | ephemeral, of the session with this id |
/// | highest bit alone | container |
/// | high byte 0xff | TTL node; the low five bytes are its TTL in milliseconds |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EphemeralOwner(u64);

const CONTAINER: u64 = 1 << 63;
const TTL: u64 = 0xff << 56;

/// Kind of a node: the condition of its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The znode stays until it is deleted.
    Persistent,
    /// The znode is swept after the end of its last child.
    Container,
    /// The znode is swept when this time in milliseconds has passed since its data was replaced.
    Ttl(u64),
    /// The znode is removed at the end of this session.
    Ephemeral(SessionId),
}

impl EphemeralOwner {
    /// Returns the session of an ephemeral node.
    pub fn session(self) -> Option<SessionId> {
        match self.kind() {
            Kind::Ephemeral(session) => Some(session),
            Kind::Persistent | Kind::Container | Kind::Ttl(_) => None,
        }
    }

    /// Returns the time to live of a TTL node, in milliseconds.
    pub fn ttl_ms(self) -> Option<u64> {
        match self.kind() {
            Kind::Ttl(ttl_ms) => Some(ttl_ms),
            Kind::Persistent | Kind::Container | Kind::Ephemeral(_) => None,
        }
    }

    /// Returns whether the node is a container.
    pub fn is_container(self) -> bool {
        self.kind() == Kind::Container
    }

    /// Returns the value in ZooKeeper's protocol.
    pub fn to_wire(self) -> i64 {
        self.0 as i64
    }

    /// Returns the owner with that value in ZooKeeper's protocol; `None` if no node of this store can have it.
    pub fn from_wire(value: i64) -> Option<Self> {
        let owner = Self(value as u64);
        owner.is_legal().then_some(owner)
    }

    pub(crate) fn kind(self) -> Kind {
        match self.0 {
            0 => Kind::Persistent,
            CONTAINER => Kind::Container,
            value if value >= TTL => Kind::Ttl(value & MAX_TTL_MS),
            session => Kind::Ephemeral(SessionId(session)),
        }
    }

    /// Returns whether a znode can have this value.
    pub(crate) fn is_legal(self) -> bool {
        match self.kind() {
            Kind::Persistent | Kind::Container => true,
            Kind::Ttl(ttl_ms) => ttl_ms > 0 && self.0 == TTL | ttl_ms,
            Kind::Ephemeral(session) => session.is_legal(),
        }
    }
}

impl From<Kind> for EphemeralOwner {
    fn from(kind: Kind) -> Self {
        Self(match kind {
            Kind::Persistent => 0,
            Kind::Container => CONTAINER,
            Kind::Ttl(ttl_ms) => TTL | ttl_ms,
            Kind::Ephemeral(session) => session.0,
        })
    }
}

/// Maximum TTL in milliseconds, about 34 years. The TTL shares eight bytes with the kind of the znode, as in ZooKeeper.
pub const MAX_TTL_MS: u64 = 0x00ff_ffff_ffff;
