//! What ZooKeeper tells about a znode beside its data.

use serde::{Deserialize, Serialize};

use crate::ids::{SessionId, Zxid};

/// ZooKeeper's `Stat`, field by field
/// (<https://zookeeper.apache.org/doc/current/zookeeperProgrammers.html#sc_zkStatStructure>).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// The zxid of the change that created the node.
    pub czxid: Zxid,
    /// The zxid of the last change of its data.
    pub mzxid: Zxid,
    /// The zxid of the last creation or deletion of a child; at first the node's own czxid.
    pub pzxid: Zxid,
    /// When it was created, in milliseconds since 1970 by the leader's clock.
    pub ctime_ms: u64,
    /// When its data was last changed, likewise.
    pub mtime_ms: u64,
    /// How often the data was changed.
    pub version: i32,
    /// How often the set of its children was changed: by one at each creation and each deletion.
    pub cversion: i32,
    /// How often the ACL was changed.
    pub aversion: i32,
    /// The session that owns an ephemeral node.
    pub ephemeral_owner: Option<SessionId>,
    /// Bytes of data.
    pub data_length: u32,
    /// Children.
    pub num_children: u32,
}
