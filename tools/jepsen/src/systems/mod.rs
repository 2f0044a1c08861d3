//! Systems under test: the interfaces for their clients, and, except for Lockgate, the start and queries of
//! their nodes.

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

/// Software of a cluster with the protocol of its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum System {
    /// Lockgate over HTTP.
    Lockgate,
    /// Lockgate over ZooKeeper's protocol.
    LockgateZookeeper,
    /// ZooKeeper as installed on this machine.
    Zookeeper,
    /// etcd as installed on this machine.
    Etcd,
}

/// All systems, for workloads that use only their common API.
pub const ALL: &[System] = &[
    System::Lockgate,
    System::LockgateZookeeper,
    System::Zookeeper,
    System::Etcd,
];

impl System {
    /// Returns whether the nodes run Lockgate.
    pub fn is_lockgate(self) -> bool {
        matches!(self, Self::Lockgate | Self::LockgateZookeeper)
    }

    /// Returns the reason if the system cannot run on this machine.
    pub fn missing(self) -> Option<String> {
        match self {
            Self::Lockgate | Self::LockgateZookeeper => None,
            Self::Zookeeper => zookeeper::missing(),
            Self::Etcd => etcd::missing(),
        }
    }

    /// Returns whether the system promises that [`Freshness::Linearizable`](crate::client::Freshness) reads
    /// are linearizable. ZooKeeper's `sync` and `getData` nearly are: a leader answers its own clients'
    /// `sync` before it has applied what it has committed.
    pub fn reads_are_linearizable(self) -> bool {
        self != Self::Zookeeper
    }

    /// Returns a client of the system's store.
    pub fn store(self, world: &World, number: usize) -> Box<dyn Store> {
        match self {
            Self::Lockgate => Box::new(LockgateStore(caller(world, number))),
            Self::LockgateZookeeper | Self::Zookeeper => Box::new(ZooKeeperStore(zookeeper(world, number))),
            Self::Etcd => Box::new(EtcdStore::new(caller(world, number), number)),
        }
    }

    /// Returns a client of the system's locks, in the way of the system's own clients: Lockgate's Rust
    /// client, ZooKeeper's recipe, etcd's lock service.
    pub fn mutex(self, world: &World, number: usize) -> Box<dyn Mutex> {
        match self {
            Self::Lockgate => Box::new(
                LockgateMutex::new(world.clone(), number)
                    .expect("socket addresses are valid client addresses"),
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

/// Returns a client of an HTTP API.
pub fn caller(world: &World, number: usize) -> Caller {
    let addresses = world.endpoints.iter().map(|endpoint| endpoint.http).collect();
    Caller::new(addresses, number)
}

fn zookeeper(world: &World, number: usize) -> ZooKeeperClient {
    let servers = world.endpoints.iter().map(|endpoint| endpoint.zookeeper);
    ZooKeeperClient::new(servers.collect(), number)
}
