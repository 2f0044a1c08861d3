//! Cluster of nodes with their front ends in one process.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use lock_node::{MemberAddress, Node, NodeConfig, NodeId};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use transport_security::ServerTls;
use zk_front::{Front, Ports, Protection, ZkConfig, serve};

/// Timeout of every step; an intact step takes less even on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Poll interval of conditions.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Minimum session timeout of the nodes.
pub const MIN_SESSION_TIMEOUT: Duration = Duration::from_millis(600);

pub struct Cluster {
    pub served: BTreeMap<NodeId, Served>,
    _dir: TempDir,
}

/// Node with its front end.
pub struct Served {
    pub node: Node,
    pub address: SocketAddr,
    /// Address of a second port without TLS.
    pub plain: Option<SocketAddr>,
    pub front: Front,
    stop: CancellationToken,
    serving: JoinSet<()>,
}

impl Cluster {
    pub async fn start(size: u64) -> Self {
        Self::start_with(size, ZkConfig::default()).await
    }

    pub async fn start_with(size: u64, zookeeper: ZkConfig) -> Self {
        Self::start_secured(size, zookeeper, None).await
    }

    pub async fn start_secured(size: u64, zookeeper: ZkConfig, tls: Option<ServerTls>) -> Self {
        Self::begin(size, zookeeper, protection(tls), None, |_| ()).await
    }

    /// Starts a node with a TLS port and a second port with this protection.
    pub async fn start_at_two_ports(zookeeper: ZkConfig, tls: ServerTls, plain: Protection) -> Self {
        Self::begin(1, zookeeper, Protection::Tls(tls), Some(plain), |_| ()).await
    }

    pub async fn start_adjusted(size: u64, zookeeper: ZkConfig, adjust: impl Fn(&mut NodeConfig)) -> Self {
        Self::begin(size, zookeeper, Protection::Trusted, None, adjust).await
    }

    async fn begin(
        size: u64,
        zookeeper: ZkConfig,
        protection: Protection,
        plain: Option<Protection>,
        adjust: impl Fn(&mut NodeConfig),
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut listeners = BTreeMap::new();
        let mut members = BTreeMap::new();
        for id in 1..=size {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let peer = listener.local_addr().unwrap().to_string();
            // No node serves HTTP, but the addresses of members have to be distinct.
            let http = peer.clone();
            members.insert(id, MemberAddress { peer, http });
            listeners.insert(id, listener);
        }
        let mut served = BTreeMap::new();
        for (id, listener) in listeners {
            let mut config = NodeConfig::new(id, "test", members.clone(), dir.path().join(format!("{id}")));
            config.raft.timing.heartbeat = Duration::from_millis(30);
            config.raft.timing.election_min = Duration::from_millis(150);
            config.raft.timing.election_max = Duration::from_millis(300);
            config.sessions.min = MIN_SESSION_TIMEOUT;
            adjust(&mut config);
            let node = Node::start_on(config, listener).await.unwrap();
            let (protection, plain) = (protection.clone(), plain.clone());
            served.insert(
                id,
                Served::start(node, zookeeper.clone(), protection, plain).await,
            );
        }
        let cluster = Self { served, _dir: dir };
        for served in cluster.served.values() {
            until("a node is ready", || served.node.not_ready().is_none()).await;
        }
        cluster
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.served[&id].node
    }

    pub fn address(&self, id: NodeId) -> SocketAddr {
        self.served[&id].address
    }

    /// Returns the address of node 1 without TLS.
    pub fn plain(&self) -> SocketAddr {
        self.served[&1].plain.unwrap()
    }

    pub async fn leader(&self) -> NodeId {
        let mut found = None;
        until("all nodes agree on a leader", || {
            let mut leaders = self.served.values().map(|served| served.node.status().leader);
            found = leaders.next().flatten();
            found.is_some_and(|leader| self.served.contains_key(&leader))
                && leaders.all(|leader| leader == found)
        })
        .await;
        found.unwrap()
    }

    /// Stops a node and aborts its connections.
    pub async fn lose(&mut self, id: NodeId) {
        let Served {
            node, mut serving, ..
        } = self.served.remove(&id).unwrap();
        serving.shutdown().await;
        in_time("the node stops", node.stop()).await;
    }

    /// Stops all nodes. Every test ends with this: a hang here is a bug of the front end.
    pub async fn stop(self) {
        for (_, served) in self.served {
            served.stop.cancel();
            in_time("the node stops", served.node.stop()).await;
            in_time("the front end stops", served.serving.join_all()).await;
        }
    }
}

impl Served {
    async fn start(node: Node, config: ZkConfig, protection: Protection, plain: Option<Protection>) -> Self {
        let mut listeners = Vec::new();
        for protection in [Some(protection), plain].into_iter().flatten() {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            listeners.push((listener.local_addr().unwrap(), listener, protection));
        }
        let mut ports = Ports::default();
        for (address, _, protection) in &listeners {
            match protection {
                Protection::Tls(_) => ports.tls = Some(*address),
                Protection::Trusted | Protection::Exposed => ports.plain = Some(*address),
            }
        }
        let address = listeners[0].0;
        let plain = listeners.get(1).map(|(address, ..)| *address);
        let front = Front::new(node.clone(), config, ports);
        let stop = CancellationToken::new();
        let mut serving = JoinSet::new();
        for (_, listener, protection) in listeners {
            serving.spawn(serve(listener, front.clone(), protection, stop.clone()));
        }
        Self {
            node,
            address,
            plain,
            front,
            stop,
            serving,
        }
    }
}

fn protection(tls: Option<ServerTls>) -> Protection {
    tls.map_or(Protection::Trusted, Protection::Tls)
}

pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(TIMEOUT, future).await {
        Ok(done) => done,
        Err(_) => panic!("{what}: not within {TIMEOUT:?}"),
    }
}

pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    in_time(what, async {
        while !condition() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    })
    .await;
}
