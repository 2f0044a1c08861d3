//! Permission that a route requires before its request is read. Each method of each address declares it ([`super::super::route`]);
//! permissions that depend on the path, the session or the lock of a request are checked where that is known.

use znode_store::{Refusal, Right, Store, View, ZPath};

/// Znode whose right `read` permits reading the state of the cluster: ZooKeeper shows its ensemble there.
const OF_CLUSTER: &str = "/zookeeper/config";

/// Requirement of a route for its caller, in a secured cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequiredPermission {
    /// Nothing, not even authentication: the route reveals nothing about the cluster or its callers.
    Public,
    /// Nothing; but who shows a token has to show a good one.
    ValidToken,
    /// Authentication. The state machine decides about the command when it is applied.
    DecidedInLog,
    /// Authentication. The handler asks the state what the caller may see (`seen_by`).
    DecidedByHandler,
    /// To read at `/zookeeper/config`, so that who watches over a cluster need not see what is in it.
    ReadCluster,
    /// To administer at `/`, as this node knows: what it asks of this node alone.
    Administer,
    /// To administer at `/`, as of now: what changes the cluster beside the log, in which a revocation would be seen.
    AdministerLinearizable,
}

impl RequiredPermission {
    /// Refuses a caller that has not what is needed, by what this node knows.
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
