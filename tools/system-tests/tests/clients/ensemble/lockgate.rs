//! Three Lockgate nodes with their ZooKeeper ports: processes of the built program.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use local_cluster::{LocalCluster, Ports};
use lockgate::lock_node::NodeId;
use tempfile::TempDir;

use super::SERVERS;

/// The program under test.
const LOCKGATE: &str = env!("CARGO_BIN_EXE_lockgate-with-faults");

/// Settings with short sweeps of containers, so that tests do not wait a minute for them.
const SETTINGS: &str = "[sweeps]\nempty_for_ms = 500\nevery_ms = 250\n";

/// The nodes.
pub struct LockgateServers {
    cluster: LocalCluster,
    /// Node ids by ZooKeeper address.
    ids: BTreeMap<String, NodeId>,
    running: BTreeSet<NodeId>,
    _directory: TempDir,
}

impl LockgateServers {
    /// Configures three nodes without starting them.
    pub fn configure() -> Self {
        let directory = TempDir::new().unwrap();
        let cluster = LocalCluster::create(
            directory.path(),
            Path::new(LOCKGATE),
            SERVERS,
            Ports::Free,
            SETTINGS,
        )
        .unwrap();
        let ids = cluster
            .nodes()
            .map(|node| {
                (
                    node.zookeeper.clone().expect("every node has a ZooKeeper port"),
                    node.id,
                )
            })
            .collect();
        Self {
            cluster,
            ids,
            running: BTreeSet::new(),
            _directory: directory,
        }
    }

    /// Returns the nodes' ZooKeeper addresses.
    pub fn addresses(&self) -> Vec<String> {
        self.ids.keys().cloned().collect()
    }

    /// Returns the nodes' HTTP addresses.
    pub fn http_addresses(&self) -> Vec<String> {
        self.cluster.http_addresses()
    }

    /// Starts a node unless it runs.
    pub fn start(&mut self, address: &str) {
        let id = self.id(address);
        if self.running.insert(id) {
            self.cluster.start(id).unwrap();
        }
    }

    /// Waits until a node has a leader and has caught up.
    pub async fn wait_ready(&mut self, address: &str, timeout: Duration) {
        let id = self.id(address);
        self.cluster.wait_ready(&[id], timeout).await.unwrap();
    }

    /// Kills a node if it runs.
    pub async fn kill(&mut self, address: &str) {
        let id = self.id(address);
        self.cluster.kill(id).await.unwrap();
        self.running.remove(&id);
    }

    /// Returns the end of a node's log.
    pub fn log_tail(&self, address: &str) -> String {
        self.cluster.log_tail(self.id(address)).unwrap_or_default()
    }

    fn id(&self, address: &str) -> NodeId {
        *self
            .ids
            .get(address)
            .unwrap_or_else(|| panic!("no node listens at {address}"))
    }
}

impl Drop for LockgateServers {
    fn drop(&mut self) {
        self.cluster.kill_now();
    }
}
