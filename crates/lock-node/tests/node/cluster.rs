//! Shared parts of the tests: nodes on ports chosen by the operating system, in temporary directories; and the tests of a cluster without
//! faults.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lock_node::znode_store::{
    Acl, Applied, Command, CreateMode, CreatePath, Data, Identities, Op, Refusal, Reply, Request, RequestId,
    ZPath,
};
use lock_node::{MemberAddress, Node, NodeConfig, NodeId, Role, SnapshotConfig, StartError};
use raft_log::Disk;
use raft_log::sim_disk::SimDisk;
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::troubled_disk::TroubledDisk;

/// Timeout of a test's step; only a bug takes this long.
pub const TIMEOUT: Duration = Duration::from_secs(30);

pub struct Cluster {
    pub dir: TempDir,
    /// Simulated disks of the nodes, if they have any.
    pub disks: BTreeMap<NodeId, SimDisk>,
    /// Disks with injected faults, if the nodes have any.
    pub troubled: BTreeMap<NodeId, TroubledDisk>,
    pub configs: BTreeMap<NodeId, NodeConfig>,
    pub nodes: BTreeMap<NodeId, Node>,
}

impl Cluster {
    /// Starts `size` nodes.
    pub async fn start(size: u64) -> Self {
        Self::start_with(size, |_| {}).await
    }

    /// Starts `size` nodes with a configuration that `change` modifies.
    pub async fn start_with(size: u64, change: impl Fn(&mut NodeConfig)) -> Self {
        Self::launch(size, BTreeMap::new(), change).await
    }

    /// Starts a node on each of the disks.
    pub async fn start_on(disks: BTreeMap<NodeId, SimDisk>) -> Self {
        Self::start_on_with(disks, |_| {}).await
    }

    /// Starts a node on each of the disks, with a configuration that `change` modifies.
    pub async fn start_on_with(disks: BTreeMap<NodeId, SimDisk>, change: impl Fn(&mut NodeConfig)) -> Self {
        Self::launch(disks.len() as u64, disks, |config| {
            // A simulated disk stores every write for the whole test.
            config.raft.log.segment_bytes = 256 * 1024;
            change(config);
        })
        .await
    }

    /// Starts `size` nodes on disks into which a test can inject faults.
    pub async fn start_troubled(size: u64, change: impl Fn(&mut NodeConfig)) -> Self {
        let disks = (1..=size).map(|id| (id, TroubledDisk::default())).collect();
        Self::launch_on(size, BTreeMap::new(), disks, change).await
    }

    async fn launch(size: u64, disks: BTreeMap<NodeId, SimDisk>, change: impl Fn(&mut NodeConfig)) -> Self {
        Self::launch_on(size, disks, BTreeMap::new(), change).await
    }

    async fn launch_on(
        size: u64,
        disks: BTreeMap<NodeId, SimDisk>,
        troubled: BTreeMap<NodeId, TroubledDisk>,
        change: impl Fn(&mut NodeConfig),
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut listeners = BTreeMap::new();
        let mut members = BTreeMap::new();
        for id in 1..=size {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let peer = listener.local_addr().unwrap().to_string();
            let address = MemberAddress {
                // No HTTP is served here, but members need different addresses.
                http: peer.clone(),
                peer,
            };
            members.insert(id, address);
            listeners.insert(id, listener);
        }
        let mut cluster = Self {
            dir,
            disks,
            troubled,
            configs: BTreeMap::new(),
            nodes: BTreeMap::new(),
        };
        for (id, listener) in listeners {
            let disk = cluster.disks.get(&id).cloned();
            let data_dir = match disk {
                Some(_) => format!("/node-{id}").into(),
                None => cluster.dir.path().join(format!("node-{id}")),
            };
            let mut config = NodeConfig::new(id, "test", members.clone(), data_dir);
            change(&mut config);
            let node = match (disk, cluster.troubled.get(&id)) {
                (Some(disk), _) => Node::start_on_disk(config.clone(), listener, Arc::new(disk)).await,
                (None, Some(disk)) => {
                    Node::start_on_disk(config.clone(), listener, Arc::new(disk.clone())).await
                }
                (None, None) => Node::start_on(config.clone(), listener).await,
            };
            cluster.configs.insert(id, config);
            cluster.nodes.insert(id, node.unwrap());
        }
        cluster.wait_ready().await;
        cluster
    }

    /// Starts a node that waits to be added, and returns its addresses.
    pub async fn start_joining(&mut self, id: NodeId) -> MemberAddress {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = listener.local_addr().unwrap().to_string();
        let address = MemberAddress {
            peer: place.clone(),
            http: place,
        };
        let data_dir = self.dir.path().join(format!("node-{id}"));
        let mut config = self.configs.values().next().unwrap().clone();
        config.raft.node_id = id;
        config.raft.data_dir = data_dir;
        config.raft.join = true;
        config.raft.members = BTreeMap::from([(id, address.clone())]);
        let node = Node::start_on(config.clone(), listener).await.unwrap();
        self.configs.insert(id, config);
        self.nodes.insert(id, node);
        address
    }

    /// Starts a node, adds it through the node `by`, and waits until it serves.
    pub async fn join(&mut self, by: NodeId, id: NodeId) {
        let address = self.start_joining(id).await;
        let added = self.node(by).add_member(id, address).await.unwrap();
        assert!(added.changed);
        let node = self.node(id).clone();
        eventually("the new node serves", || node.not_ready().is_none()).await;
    }

    /// Returns the voters, as a node sees them.
    pub fn voters(&self, by: NodeId) -> Vec<NodeId> {
        let members = self.node(by).status().members;
        let voters = members.iter().filter(|member| member.role != Role::Learner);
        voters.map(|member| member.node_id).collect()
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[&id]
    }

    pub async fn wait_ready(&self) {
        for node in self.nodes.values() {
            eventually("a node is ready", || node.not_ready().is_none()).await;
        }
    }

    /// Returns the leader on which all running nodes agree.
    pub async fn leader(&self) -> NodeId {
        let mut found = None;
        eventually("all nodes agree on a leader", || {
            let mut leaders = self.nodes.values().map(|node| node.status().leader);
            found = leaders.next().flatten();
            found.is_some_and(|leader| self.nodes.contains_key(&leader))
                && leaders.all(|leader| leader == found)
        })
        .await;
        found.unwrap()
    }

    pub async fn follower(&self) -> NodeId {
        let leader = self.leader().await;
        *self.nodes.keys().find(|id| **id != leader).unwrap()
    }

    pub async fn stop(&mut self, id: NodeId) {
        self.nodes.remove(&id).unwrap().stop().await;
    }

    pub async fn restart(&mut self, id: NodeId) -> Result<(), StartError> {
        let config = self.configs[&id].clone();
        let listener = listen_again(&config.raft.peer_listen_address()?).await;
        let disk: Option<Arc<dyn Disk>> = match (self.troubled.get(&id), self.disks.get(&id)) {
            (Some(disk), _) => Some(Arc::new(disk.clone())),
            (None, Some(disk)) => Some(Arc::new(disk.clone())),
            (None, None) => None,
        };
        let node = match disk {
            Some(disk) => Node::start_on_disk(config, listener, disk).await?,
            None => Node::start_on(config, listener).await?,
        };
        self.nodes.insert(id, node);
        Ok(())
    }

    pub async fn stop_all(&mut self) {
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        for id in ids {
            self.stop(id).await;
        }
    }
}

/// Listens at the address of a stopped node. A connection of another process may have the port for a while, since it is one of those that the
/// operating system chooses from.
async fn listen_again(address: &str) -> TcpListener {
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    loop {
        match TcpListener::bind(address).await {
            Err(error)
                if error.kind() == std::io::ErrorKind::AddrInUse
                    && tokio::time::Instant::now() < deadline =>
            {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            bound => return bound.unwrap(),
        }
    }
}

/// Waits until `condition` holds.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let waited = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(
        tokio::time::timeout(TIMEOUT, waited).await.is_ok(),
        "timeout: {what}"
    );
}

/// Waits until the leader has proposed every setting that the state lacked. From then on a quiet cluster adds no log entry of its own.
pub async fn settings_applied(node: &Node) {
    // The leader proposes this one last.
    eventually("the state has its settings", || {
        !node.read(|store| store.lets_waits_outlive_rights())
    })
    .await;
}

pub fn path(text: &str) -> ZPath {
    ZPath::parse(text).unwrap()
}

pub fn create(text: &str, data: &str, mode: CreateMode) -> Command {
    let path = CreatePath::parse(text, mode.is_sequential()).unwrap();
    Command::Write(Op::Create {
        path,
        data: data.into(),
        acl: Acl::open(),
        mode,
        parents: false,
    })
}

pub fn request(command: Command) -> Request {
    Request::anonymous(command)
}

pub async fn put(node: &Node, text: &str, data: &str) -> Applied {
    node.propose(request(create(text, data, CreateMode::Persistent)))
        .await
        .unwrap()
}

#[tokio::test]
async fn single_node_serves() {
    let mut cluster = Cluster::start(1).await;
    let applied = put(cluster.node(1), "/a", "x").await;
    assert!(matches!(applied.outcome, Ok(Reply::Created { .. })));
    let read = cluster
        .node(1)
        .read(|store| store.get(&path("/a")).map(|(data, _)| data));
    assert_eq!(read, Some(Data::from("x")));
    cluster.stop_all().await;
}

#[tokio::test]
async fn every_node_accepts_writes_and_reads_its_own_at_once() {
    let mut cluster = Cluster::start(3).await;
    for (id, node) in &cluster.nodes {
        let at = format!("/from-{id}");
        let applied = put(node, &at, "x").await;
        assert!(applied.outcome.is_ok());
        assert!(
            node.read(|store| store.get(&path(&at)).is_some()),
            "a caller reads its own write"
        );
    }
    for node in cluster.nodes.values() {
        node.read_barrier().await.unwrap();
        let names = node.read(|store| store.children(&ZPath::root()));
        let names: Vec<String> = names.unwrap().iter().map(|name| name.to_string()).collect();
        assert_eq!(names, ["from-1", "from-2", "from-3", "zookeeper"]);
    }
    let digests: Vec<u64> = cluster
        .nodes
        .values()
        .map(|node| node.read(|store| store.digest()))
        .collect();
    assert!(digests.windows(2).all(|pair| pair[0] == pair[1]), "{digests:?}");
    cluster.stop_all().await;
}

#[tokio::test]
async fn refusal_is_returned_to_the_caller() {
    let mut cluster = Cluster::start(3).await;
    let follower = cluster.follower().await;
    put(cluster.node(follower), "/a", "x").await;
    let again = put(cluster.node(follower), "/a", "x").await;
    assert_eq!(again.outcome, Err(Refusal::NodeExists(path("/a"))));
    cluster.stop_all().await;
}

#[tokio::test]
async fn repeated_request_is_applied_once() {
    let mut cluster = Cluster::start(3).await;
    let request = Request {
        session: None,
        request_id: Some(RequestId::parse("order-17").unwrap()),
        caller: Identities::none(),
        command: create("/queue-", "x", CreateMode::PersistentSequential),
    };
    let first = cluster.node(1).propose(request.clone()).await.unwrap();
    for node in cluster.nodes.values() {
        let again = node.propose(request.clone()).await.unwrap();
        assert_eq!(again.outcome, first.outcome);
    }
    let names = cluster.node(1).read(|store| store.children(&ZPath::root()));
    let names: Vec<String> = names.unwrap().iter().map(|name| name.to_string()).collect();
    assert_eq!(names, ["queue-0000000000", "zookeeper"]);
    cluster.stop_all().await;
}

#[tokio::test]
async fn concurrent_callers_share_entries() {
    let mut cluster = Cluster::start(3).await;
    let follower = cluster.follower().await;
    let before = cluster.node(follower).status().applied_index;
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..200 {
        let node = cluster.node(follower).clone();
        callers.spawn(async move { put(&node, &format!("/n{caller}"), "x").await.outcome.is_ok() });
    }
    assert!(callers.join_all().await.into_iter().all(|ok| ok));
    let entries = cluster.node(follower).status().applied_index - before;
    assert!(entries < 100, "200 commands came in {entries} entries");
    cluster.stop_all().await;
}

pub fn small_snapshots(config: &mut NodeConfig) {
    config.raft.snapshots = SnapshotConfig {
        every_entries: 20,
        keep_entries: 5,
        ..SnapshotConfig::default()
    };
}

#[tokio::test]
async fn large_entries_reach_a_restarted_follower() {
    let mut cluster = Cluster::start(3).await;
    let away = cluster.follower().await;
    cluster.stop(away).await;
    let here = cluster.leader().await;
    // Znodes of the maximum size, together more than one frame may have.
    let large = "x".repeat(lock_node::znode_store::MAX_DATA_BYTES);
    for n in 0..80 {
        assert!(
            put(cluster.node(here), &format!("/large-{n}"), &large)
                .await
                .outcome
                .is_ok()
        );
    }
    cluster.restart(away).await.unwrap();
    cluster.wait_ready().await;
    cluster.node(away).read_barrier().await.unwrap();
    assert_eq!(
        cluster.node(away).read(|store| store.node_count()),
        cluster.node(here).read(|store| store.node_count())
    );
    cluster.stop_all().await;
}

#[tokio::test]
async fn empty_container_of_an_idle_cluster_is_swept() {
    let soon = |config: &mut NodeConfig| {
        config.sweeps.empty_for = Duration::from_millis(200);
        config.sweeps.every = Duration::from_millis(50);
    };
    let mut cluster = Cluster::start_with(3, soon).await;
    let node = cluster.node(1).clone();
    for (at, mode) in [
        ("/used", CreateMode::Container),
        ("/fresh", CreateMode::Container),
    ] {
        let created = node.propose(request(create(at, "", mode))).await.unwrap();
        assert!(created.outcome.is_ok());
    }
    put(&node, "/used/child", "x").await;
    let delete = Op::Delete {
        path: path("/used/child"),
        version: -1,
    };
    let deleted = node.propose(request(Command::Write(delete))).await.unwrap();
    assert!(deleted.outcome.is_ok());
    eventually("the used container is swept", || {
        node.read(|store| store.get(&path("/used")).is_none())
    })
    .await;
    assert!(
        node.read(|store| store.get(&path("/fresh")).is_some()),
        "a container that never had a child stays"
    );
    cluster.stop_all().await;
}
