//! The systems under test: what clients have to know of them, and, for those that are not Lockgate, how their nodes are
//! started and asked.

mod etcd;
mod zookeeper;

pub use etcd::Etcd;
pub use zookeeper::ZooKeeper;

use serde::{Deserialize, Serialize};

use crate::client::{
    Caller, EtcdMutex, EtcdStore, LockgateMutex, LockgateStore, Mutex, Store, ZooKeeperClient,
    ZooKeeperMutex, ZooKeeperStore,
};
use crate::world::World;

/// Which software a cluster runs, and how it is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum System {
    /// Lockgate, by HTTP.
    Lockgate,
    /// Lockgate, by ZooKeeper's protocol.
    LockgateZookeeper,
    /// ZooKeeper, as this machine has it installed.
    Zookeeper,
    /// etcd, as this machine has it installed.
    Etcd,
}

/// Those that speak ZooKeeper's protocol or etcd's, and the workloads of those that all of them can do.
pub const ALL: &[System] = &[
    System::Lockgate,
    System::LockgateZookeeper,
    System::Zookeeper,
    System::Etcd,
];

impl System {
    /// Whether its nodes are Lockgate's.
    pub fn is_lockgate(self) -> bool {
        matches!(self, Self::Lockgate | Self::LockgateZookeeper)
    }

    /// Why it cannot be run on this machine, if so.
    pub fn missing(self) -> Option<String> {
        match self {
            Self::Lockgate | Self::LockgateZookeeper => None,
            Self::Zookeeper => zookeeper::missing(),
            Self::Etcd => etcd::missing(),
        }
    }

    /// Whether what [`Freshness::Linearizable`](crate::client::Freshness) reads is promised to be so. ZooKeeper's `sync` and
    /// `getData` nearly are: a leader answers its own clients' `sync` before it has applied what it has committed.
    pub fn reads_are_linearizable(self) -> bool {
        self != Self::Zookeeper
    }

    /// A client's access to its store.
    pub fn store(self, world: &World, number: usize) -> Box<dyn Store> {
        match self {
            Self::Lockgate => Box::new(LockgateStore(caller(world, number))),
            Self::LockgateZookeeper | Self::Zookeeper => Box::new(ZooKeeperStore(zookeeper(world, number))),
            Self::Etcd => Box::new(EtcdStore::new(caller(world, number), number)),
        }
    }

    /// A client's access to its locks, as the system's own clients take them: Lockgate's Rust client, ZooKeeper's recipe, etcd's
    /// lock service.
    pub fn mutex(self, world: &World, number: usize) -> Box<dyn Mutex> {
        match self {
            Self::Lockgate => Box::new(
                LockgateMutex::new(world.clone(), number).expect("addresses of sockets are addresses"),
            ),
            Self::LockgateZookeeper | Self::Zookeeper => {
                Box::new(ZooKeeperMutex::new(zookeeper(world, number), world.clone()))
            }
            Self::Etcd => Box::new(EtcdMutex::new(
                caller(world, number),
                caller(world, number + 1),
                world.clone(),
            )),
        }
    }
}

/// A client of an HTTP API.
pub fn caller(world: &World, number: usize) -> Caller {
    let addresses = world.endpoints.iter().map(|endpoint| endpoint.http).collect();
    Caller::new(addresses, number)
}

fn zookeeper(world: &World, number: usize) -> ZooKeeperClient {
    let servers = world.endpoints.iter().map(|endpoint| endpoint.zookeeper);
    ZooKeeperClient::new(servers.collect(), number)
}
