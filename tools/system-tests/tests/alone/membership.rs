//! Members are added, promoted, lost, replaced and removed, including the leader, while many clients acquire
//! locks and write. The lock never has two holders, no acknowledged write is lost, and writes continue.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cli_support::api_client::{ApiClient, RenewedSession};
use cli_support::http_client;
use local_cluster::members::Members;
use local_cluster::{START_TIMEOUT, STOP_TIMEOUT};
use lockgate::lock_node::{MemberAddress, NodeId};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::harness::{TIMEOUT, TestCluster, eventually, rounds};

/// Bound for the time without a successful write.
const MAX_WRITE_GAP: Duration = Duration::from_secs(2);

/// Timeout after which a caller switches to another node. It is below the bound for writes, since a request
/// may be in flight to a node that is killed.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(700);

/// Pause between two attempts of a write. A dead node refuses at once, and retries without a pause would take
/// CPU time from the election.
const RETRY_DELAY: Duration = Duration::from_millis(5);

/// Time for which each client holds the lock: long enough for a second holder to be detected.
const HOLD_TIME: Duration = Duration::from_millis(3);

const WRITERS: usize = 4;
const LOCKERS: usize = 4;

/// HTTP addresses of the nodes, updated as members change.
#[derive(Default)]
struct NodeAddresses(Mutex<Vec<String>>);

impl NodeAddresses {
    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Shared state that the lock protects.
#[derive(Default)]
struct Guarded {
    inside: AtomicBool,
    last_token: AtomicU64,
    entries: AtomicUsize,
}

struct Load {
    addresses: Arc<NodeAddresses>,
    done: Arc<AtomicBool>,
    guarded: Arc<Guarded>,
    /// Times of acknowledged writes, the longest duration of one with all its attempts, and the created
    /// paths.
    writes: Arc<Mutex<Writes>>,
    tasks: JoinSet<()>,
}

#[derive(Default)]
struct Writes {
    answered: Vec<Instant>,
    slowest: Duration,
    paths: Vec<String>,
}

impl Load {
    fn start(addresses: Arc<NodeAddresses>) -> Self {
        let mut load = Self {
            addresses,
            done: Arc::default(),
            guarded: Arc::default(),
            writes: Arc::default(),
            tasks: JoinSet::new(),
        };
        for writer in 0..WRITERS {
            let (addresses, done, writes) = (load.addresses.clone(), load.done.clone(), load.writes.clone());
            load.tasks.spawn(async move {
                let mut turn = writer;
                while !done.load(Ordering::Relaxed) {
                    write(&addresses, &writes, &mut turn).await;
                }
            });
        }
        for locker in 0..LOCKERS {
            let (addresses, done, guarded) =
                (load.addresses.clone(), load.done.clone(), load.guarded.clone());
            load.tasks.spawn(async move {
                let mut turn = locker;
                while !done.load(Ordering::Relaxed) {
                    enter(&addresses, &guarded, turn).await;
                    turn += 1;
                }
            });
        }
        load
    }

    async fn finish(self) -> (Arc<Guarded>, Writes) {
        self.done.store(true, Ordering::Relaxed);
        self.tasks.join_all().await;
        let writes = std::mem::take(&mut *self.writes.lock().unwrap());
        (self.guarded, writes)
    }
}

/// Makes one write, trying one node after the other until one acknowledges it. An attempt without an answer
/// may have been applied.
async fn write(addresses: &NodeAddresses, writes: &Mutex<Writes>, turn: &mut usize) {
    let began = Instant::now();
    let body = json!({ "mode": "persistent_sequential", "data": "x" }).to_string();
    loop {
        *turn += 1;
        let all = addresses.all();
        let node = &all[*turn % all.len()];
        let call = http_client::request(node, "POST", "/v1/znodes/writes/n-", &body);
        if let Ok(Ok(answer)) = tokio::time::timeout(ATTEMPT_TIMEOUT, call).await
            && answer.status == 201
        {
            let now = Instant::now();
            let path = answer.json()["path"].as_str().expect("a path").to_owned();
            let mut writes = writes.lock().unwrap();
            writes.answered.push(now);
            writes.slowest = writes.slowest.max(now - began);
            writes.paths.push(path);
            return;
        }
        assert!(began.elapsed() < TIMEOUT, "no node answers a write");
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

/// Acquires the lock, checks that it is held alone, and releases it.
async fn enter(addresses: &NodeAddresses, guarded: &Guarded, first: usize) {
    let mut client = ApiClient::new(&addresses.all(), first, TIMEOUT);
    let session = RenewedSession::open(&mut client, Duration::from_secs(30), "locker")
        .await
        .expect("a session");
    // Every holder releases soon, so each wait ends; when a node disappears, so does the connection to it.
    let held = client.acquire(session.id(), "guarded").await.expect("the lock");
    assert!(
        !guarded.inside.swap(true, Ordering::SeqCst),
        "the lock has two holders"
    );
    let before = guarded.last_token.swap(held.fencing_token, Ordering::SeqCst);
    assert!(
        held.fencing_token > before,
        "{} after {before}",
        held.fencing_token
    );
    tokio::time::sleep(HOLD_TIME).await;
    guarded.entries.fetch_add(1, Ordering::SeqCst);
    assert!(guarded.inside.swap(false, Ordering::SeqCst));
    client
        .release(session.id(), &held)
        .await
        .expect("the lock is still held");
    client
        .close_session(session.id())
        .await
        .expect("the session can be closed");
}

/// Operator that changes the membership.
struct Operator {
    cluster: TestCluster,
    addresses: Arc<NodeAddresses>,
}

impl Operator {
    fn publish_addresses(&self) {
        *self.addresses.0.lock().unwrap() = self.cluster.http_addresses();
    }

    fn members(&self) -> Members {
        Members::at(&self.cluster.http_addresses())
    }

    /// Adds a new node, from its configuration to its vote.
    async fn add(&mut self) -> NodeId {
        let mut members = self.members();
        let id = members.next_id().await.unwrap();
        let node = self.cluster.configure_new(id).unwrap();
        self.cluster.start(id).unwrap();
        self.cluster.wait_listening(id, START_TIMEOUT).await.unwrap();
        let address = MemberAddress {
            peer: node.peer,
            http: node.http,
        };
        members.add(id, &address).await.unwrap();
        self.cluster.wait_ready(&[id], START_TIMEOUT).await.unwrap();
        // A learner accepts requests like any other node.
        self.publish_addresses();
        members.promote(id, TIMEOUT).await.unwrap();
        id
    }

    /// Returns the leader, or a follower.
    async fn pick(&self, leader: bool) -> NodeId {
        match leader {
            true => self.cluster.leader_now().await,
            false => self.cluster.followers().await[0],
        }
    }

    /// Kills a node and replaces it by a new one.
    async fn replace(&mut self, leader: bool) {
        let lost = self.pick(leader).await;
        assert!(self.cluster.kill(lost).await.unwrap());
        self.forget(lost).await;
        self.add().await;
    }

    /// Removes a running node, which then exits.
    async fn remove(&mut self, leader: bool) {
        let id = self.pick(leader).await;
        self.members().remove(id, false).await.unwrap();
        let cluster = &self.cluster;
        eventually(&format!("node {id} exits"), async || {
            cluster.pid(id).unwrap().is_none()
        })
        .await;
        let log = self.cluster.log_tail(id).unwrap();
        assert!(
            log.trim_end()
                .lines()
                .last()
                .unwrap()
                .contains("was removed from the cluster"),
            "{log}"
        );
        self.forget(id).await;
    }

    async fn forget(&mut self, id: NodeId) {
        self.members().remove(id, false).await.unwrap();
        self.cluster.put_aside(id, STOP_TIMEOUT).await.unwrap();
        self.publish_addresses();
    }
}

#[tokio::test]
async fn locks_and_writes_continue_during_membership_changes() {
    let cluster = TestCluster::start().await;
    let mut operator = Operator {
        cluster,
        addresses: Arc::default(),
    };
    operator.publish_addresses();
    let parent = operator
        .cluster
        .send(1, "POST", "/v1/znodes/writes", &json!({}))
        .await;
    assert_eq!(parent.status, 201);
    let load = Load::start(operator.addresses.clone());
    let began = Instant::now();
    // Steps with their times, to report the step during which writes paused.
    let mut steps = Vec::new();
    let count = rounds(1);
    for round in 0..count {
        let (with_leader, without) = (round % 2 == 0, round % 2 == 1);
        let mut told = |what: &'static str| steps.push((Instant::now(), what));
        operator.add().await;
        told("added");
        operator.replace(with_leader).await;
        told("replaced");
        operator.remove(with_leader).await;
        told("removed");
        let follower = operator.pick(false).await;
        let mut members = operator.members();
        members.demote(follower, false).await.unwrap();
        told("demoted");
        members.promote(follower, TIMEOUT).await.unwrap();
        told("promoted");
        members.move_leader(None).await.unwrap();
        told("made the leader");
        // The same with the roles reversed.
        operator.add().await;
        operator.remove(without).await;
        told("added and another removed");
    }
    let ended = Instant::now();
    let (guarded, writes) = load.finish().await;

    let mut moments = writes.answered;
    moments.retain(|moment| (began..=ended).contains(moment));
    moments.extend([began, ended]);
    moments.sort_unstable();
    let pauses = moments.windows(2).map(|pair| (pair[1] - pair[0], pair[1]));
    let (longest, over) = pauses.max().unwrap();
    let step = steps.iter().find(|(done, _)| *done >= over);
    let during = step.map_or("the end", |(_, what)| what);
    let entries = guarded.entries.load(Ordering::SeqCst);
    println!(
        "{count} rounds in {:?}: {} writes, the longest time without one {longest:?} (when a node was {during}), the \
         slowest {:?}; {entries} times in the lock",
        ended - began,
        writes.paths.len(),
        writes.slowest,
    );
    assert!(entries > 0);
    assert!(longest < MAX_WRITE_GAP, "no write for {longest:?}");
    assert!(
        writes.slowest < MAX_WRITE_GAP,
        "a write took {:?}",
        writes.slowest
    );

    let answered: BTreeSet<String> = writes.paths.iter().cloned().collect();
    assert_eq!(
        answered.len(),
        writes.paths.len(),
        "every sequence number is unique"
    );
    let mut digests = BTreeSet::new();
    for id in operator.cluster.ids() {
        let there = children(&operator.cluster, id).await;
        let lost: Vec<_> = answered.difference(&there).collect();
        assert!(lost.is_empty(), "node {id} lacks {lost:?}");
        digests.insert(there);
    }
    assert_eq!(digests.len(), 1, "all nodes have the same children");
}

async fn children(cluster: &TestCluster, id: NodeId) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut after = String::new();
    loop {
        let path = format!("/v1/znodes/writes?children=true&linearizable=true&limit=1000&cursor={after}");
        let page = http_client::request(&cluster.http(id), "GET", &path, "")
            .await
            .unwrap()
            .json();
        let names = page["children"].as_array().expect("children");
        let name = |child: &Value| format!("/writes/{}", child["name"].as_str().expect("a name"));
        all.extend(names.iter().map(name));
        match page["next_cursor"].as_str() {
            Some(next) => after = next.to_owned(),
            None => return all,
        }
    }
}
