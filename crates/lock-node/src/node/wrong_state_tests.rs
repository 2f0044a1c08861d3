use std::collections::BTreeMap;
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpListener;
use znode_store::{Acl, Command, CreateMode, CreatePath, EntryContext, Op, Request, Store};

use crate::config::NodeConfig;
use crate::node::Node;
use raft_node::disk_health::AlarmKind;
use raft_node::{MemberAddress, NodeId};

const TIMEOUT: Duration = Duration::from_secs(60);

struct Cluster {
    configs: BTreeMap<NodeId, NodeConfig>,
    nodes: BTreeMap<NodeId, Node>,
    _dir: TempDir,
}

impl Cluster {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (mut listeners, mut members) = (BTreeMap::new(), BTreeMap::new());
        for id in 1..=3 {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let peer = listener.local_addr().unwrap().to_string();
            let http = peer.clone();
            members.insert(id, MemberAddress { peer, http });
            listeners.insert(id, listener);
        }
        let mut cluster = Self {
            configs: BTreeMap::new(),
            nodes: BTreeMap::new(),
            _dir: dir,
        };
        for (id, listener) in listeners {
            let data_dir = cluster._dir.path().join(id.to_string());
            let mut config = NodeConfig::new(id, "test", members.clone(), data_dir);
            config.raft.audit_interval = Duration::from_millis(50);
            let node = Node::start_on(config.clone(), listener).await.unwrap();
            cluster.configs.insert(id, config);
            cluster.nodes.insert(id, node);
        }
        cluster.all_serve().await;
        cluster
    }

    async fn stop(&mut self, id: NodeId) {
        self.nodes.remove(&id).unwrap().stop().await;
    }

    async fn restart(&mut self, id: NodeId) {
        let node = Node::start(self.configs[&id].clone()).await.unwrap();
        self.nodes.insert(id, node);
    }

    async fn all_serve(&self) {
        for node in self.nodes.values() {
            until("a node serves", || node.not_ready().is_none()).await;
        }
    }

    async fn leader(&self) -> NodeId {
        let mut leader = None;
        until("all agree on a leader", || {
            let mut leaders = self.nodes.values().map(|node| node.status().leader);
            leader = leaders.next().flatten();
            leader.is_some_and(|leader| self.nodes.contains_key(&leader)) && leaders.all(|it| it == leader)
        })
        .await;
        leader.unwrap()
    }

    async fn follower(&self) -> NodeId {
        let leader = self.leader().await;
        *self.nodes.keys().find(|id| **id != leader).unwrap()
    }

    async fn stop_all(&mut self) {
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.stop(id).await;
        }
    }
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let waited = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(TIMEOUT, waited).await;
    assert!(waited.is_ok(), "timed out: {what}");
}

fn create(path: &str) -> Request {
    Request::anonymous(Command::Write(Op::Create {
        path: CreatePath::parse(path, false).unwrap(),
        data: "x".into(),
        acl: Acl::open(),
        mode: CreateMode::Persistent,
        parents: false,
    }))
}

async fn put(node: &Node, path: &str) {
    node.propose(create(path)).await.unwrap().outcome.unwrap();
}

/// Replaces the state of a node by another one at the same position, as a flipped bit or a faulty apply would.
fn spoil(node: &Node) {
    let mut store = node.replica().store.write();
    let (zxid, context) = (
        store.zxid(),
        EntryContext {
            time_ms: store.time_ms(),
            term: 1,
        },
    );
    let mut other = Store::new();
    while other.zxid() < zxid {
        let path = format!("/spoilt-{}", other.zxid().0);
        other.apply(&context, create(&path), &mut Vec::new());
    }
    *store = other;
}

fn has_alarm(node: &Node, about: NodeId) -> bool {
    let alarms = node.status().alarms;
    let key = (Some(about), AlarmKind::StateDiffers);
    alarms.iter().any(|alarm| (alarm.node_id, alarm.kind) == key)
}

async fn does_not_serve(node: &Node) {
    until("the node does not serve", || node.serving().is_err()).await;
    assert!(node.not_ready().unwrap().contains("state differs"));
    assert!(node.propose(create("/refused")).await.is_err());
    assert!(node.caught_up_once().await.is_err());
}

#[tokio::test]
async fn follower_that_differs_stops_serving_and_serves_again_after_a_restart_that_mends_it() {
    let mut cluster = Cluster::start().await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    put(&cluster.nodes[&leader], "/a").await;
    cluster.nodes[&follower].read_barrier().await.unwrap();
    spoil(&cluster.nodes[&follower]);
    does_not_serve(&cluster.nodes[&follower]).await;
    for node in cluster.nodes.values() {
        until("there is an alarm", || has_alarm(node, follower)).await;
    }
    // The other nodes continue, and this one continues to vote.
    put(&cluster.nodes[&leader], "/b").await;
    let third = *cluster
        .nodes
        .keys()
        .find(|id| ![leader, follower].contains(id))
        .unwrap();
    cluster.stop(third).await;
    put(&cluster.nodes[&leader], "/c").await;
    assert!(cluster.nodes[&follower].make_snapshot().await.is_err());
    cluster.restart(third).await;

    cluster.stop(follower).await;
    cluster.restart(follower).await;
    cluster.all_serve().await;
    put(&cluster.nodes[&follower], "/d").await;
    for node in cluster.nodes.values() {
        until("the alarm is over", || !has_alarm(node, follower)).await;
    }
    cluster.stop_all().await;
}

#[tokio::test]
async fn leader_that_differs_from_the_majority_hands_over_and_stops_serving() {
    let mut cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    put(&cluster.nodes[&leader], "/a").await;
    for node in cluster.nodes.values() {
        node.read_barrier().await.unwrap();
    }
    spoil(&cluster.nodes[&leader]);
    does_not_serve(&cluster.nodes[&leader]).await;
    let others = || cluster.nodes.iter().filter(|(id, _)| **id != leader);
    until("another one leads", || {
        others().all(|(_, node)| node.status().leader.is_some_and(|now| now != leader))
    })
    .await;
    for (id, node) in others() {
        until("the others serve", || node.serving().is_ok()).await;
        put(node, &format!("/from-{id}")).await;
    }
    cluster.stop_all().await;
}

#[tokio::test]
async fn without_a_majority_none_of_those_that_differ_serves_until_one_decides() {
    let mut cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let mut others = cluster
        .nodes
        .keys()
        .copied()
        .filter(|id| *id != leader)
        .collect::<Vec<_>>();
    let (away, follower) = (others.pop().unwrap(), others.pop().unwrap());
    put(&cluster.nodes[&leader], "/a").await;
    for node in cluster.nodes.values() {
        node.read_barrier().await.unwrap();
    }
    cluster.stop(away).await;
    spoil(&cluster.nodes[&follower]);
    for id in [leader, follower] {
        does_not_serve(&cluster.nodes[&id]).await;
        let node = &cluster.nodes[&id];
        until("both are named", || {
            has_alarm(node, leader) && has_alarm(node, follower)
        })
        .await;
    }
    cluster.restart(away).await;
    for id in [leader, away] {
        let node = &cluster.nodes[&id];
        until("two of three decide", || node.not_ready().is_none()).await;
    }
    assert!(cluster.nodes[&follower].serving().is_err());
    cluster.stop_all().await;
}
