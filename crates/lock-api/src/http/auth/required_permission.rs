//! Permission that a route requires before its request is read. Each method of each address declares it
//! ([`super::super::route`]); permissions that depend on the path, the session or the lock of a request are checked
//! where that is known.

use znode_store::{Refusal, Right, Store, View, ZPath};

/// Znode whose right `read` permits reading the state of the cluster: ZooKeeper shows its ensemble there.
const OF_CLUSTER: &str = "/zookeeper/config";

/// Requirement of a route for its caller, in a secured cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequiredPermission {
    /// Nothing, not even authentication: the route reveals nothing about the cluster or its callers.
    Public,
    /// Nothing; but a caller that sends a token must send a valid one.
    ValidToken,
    /// Authentication. The state machine decides about the command when it is applied.
    DecidedInLog,
    /// Authentication. The handler asks the state what the caller may see (`seen_by`).
    DecidedByHandler,
    /// The right to read `/zookeeper/config`. A monitoring program thus needs no right to the content of the cluster.
    ReadCluster,
    /// The right to administer `/`, by this node's state: for requests that concern this node alone.
    Administer,
    /// The right to administer `/`, checked after a read barrier. Such a request changes the cluster outside of the
    /// log, so no check in log order would notice a revocation.
    AdministerLinearizable,
}

impl RequiredPermission {
    /// Rejects a caller without this permission, by the state that `view` shows.
    pub fn require(self, view: View<'_>) -> Result<(), Refusal> {
        match self {
            Self::Public | Self::ValidToken => Ok(()),
            Self::DecidedInLog | Self::DecidedByHandler => view.admission(),
            Self::ReadCluster => view.may(Right::Read, &of_cluster()),
            Self::Administer | Self::AdministerLinearizable => view.may(Right::Administer, &ZPath::root()),
        }
    }

    /// Returns whether the requirement may need the newest state of the cluster.
    pub(super) fn may_need_barrier(self) -> bool {
        self == Self::AdministerLinearizable
    }

    /// Returns whether the requirement needs the newest state of the cluster.
    pub(super) fn needs_barrier(self, store: &Store) -> bool {
        self.may_need_barrier() && store.is_secured()
    }
}

fn of_cluster() -> ZPath {
    ZPath::parse(OF_CLUSTER).expect("it is a path")
}
