//! Redis clients of a cluster: killed leaders, waiters over HTTP, TLS and tokens.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use local_cluster::START_TIMEOUT;
use lock_client::LockClient;
use lockgate::lock_node::NodeId;
use lockgate::transport_security::ClientTls;
use serde_json::Value;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::harness::{ACCESS_REQUIRED, TIMEOUT, TestCluster, eventually, rounds};

/// Script of redis-py that deletes a key if it has the given value.
const DELETE_IF_EQUAL: &str = "c3f8721cbb97f72bc19e972846bd7aaf91901658";

/// Number of clients that want one lock while leaders are killed.
const BUYERS: u64 = 12;

/// Time to live of their locks. A client believes to hold its lock for no longer, counted from before its command.
const TTL: Duration = Duration::from_secs(3);

trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Connection for S {}

/// Client that sends inline commands.
struct Client(BufReader<Box<dyn Connection>>);

impl Client {
    async fn connect(address: &str, tls: Option<&ClientTls>) -> std::io::Result<Self> {
        let socket = TcpStream::connect(address).await?;
        Ok(Self(BufReader::new(match tls {
            Some(tls) => {
                let stream = tls.connect("127.0.0.1", socket).await;
                Box::new(stream.map_err(std::io::Error::other)?)
            }
            None => Box::new(socket),
        })))
    }

    /// Sends a command. Returns its reply as text: a value, or the line; an error if the connection has ended.
    async fn command(&mut self, command: &str) -> std::io::Result<String> {
        let exchange = async {
            self.0.write_all(format!("{command}\r\n").as_bytes()).await?;
            let mut line = String::new();
            if self.0.read_line(&mut line).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end();
            let Some(length) = line.strip_prefix('$') else {
                return Ok(line.to_owned());
            };
            let Ok(length) = length.parse::<usize>() else {
                return Ok("null".to_owned());
            };
            let mut value = vec![0; length + 2];
            self.0.read_exact(&mut value).await?;
            Ok(String::from_utf8_lossy(&value[..length]).into_owned())
        };
        timeout(TIMEOUT, exchange).await.expect("a reply in time")
    }
}

fn address(cluster: &TestCluster, id: NodeId) -> String {
    let node = cluster.node(id).expect("a node of the cluster");
    node.redis.clone().expect("it serves Redis clients")
}

async fn start(mut cluster: TestCluster) -> TestCluster {
    cluster.serve_redis(None).expect("there are free ports");
    cluster.up(START_TIMEOUT).await.expect("the cluster starts");
    cluster
}

async fn client(cluster: &TestCluster, id: NodeId) -> Client {
    let connected = Client::connect(&address(cluster, id), cluster.tls()).await;
    connected.expect("the node serves Redis clients")
}

/// One who buys tickets: each time it takes the lock, it is alone.
struct Buyer {
    addresses: Vec<String>,
    number: u64,
    connection: Option<Client>,
    /// End of the time for which a buyer believes to hold the lock.
    held_until: Arc<Mutex<Option<Instant>>>,
    sold: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Buyer {
    /// Sends a command to any node; `None` if its outcome is unknown.
    async fn command(&mut self, command: &str) -> Option<String> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            None => {
                let next = self.number as usize % self.addresses.len();
                self.number += 1;
                let connected = Client::connect(&self.addresses[next], None).await;
                let Ok(connected) = connected else {
                    sleep(Duration::from_millis(20)).await;
                    return None;
                };
                self.connection.insert(connected)
            }
        };
        let reply = connection.command(command).await.ok();
        if reply.is_none() {
            self.connection = None;
        }
        reply
    }

    async fn release(&mut self, value: &str) {
        // As long as the outcome is unknown: a lock that stays for its time to live would only delay the others.
        for _ in 0..50 {
            let command = format!("EVALSHA {DELETE_IF_EQUAL} 1 tickets {value}");
            match self.command(&command).await.as_deref() {
                Some(":0" | ":1") => return,
                _ => sleep(Duration::from_millis(20)).await,
            }
        }
    }

    async fn run(mut self, name: u64) {
        let mut attempt = 0;
        while !self.stop.load(Ordering::SeqCst) {
            attempt += 1;
            let value = format!("buyer-{name:04}-attempt-{attempt:08}");
            let until = Instant::now() + TTL;
            let command = format!("SET tickets {value} NX PX {}", TTL.as_millis());
            let reply = self.command(&command).await;
            if reply.as_deref() == Some("+OK") && Instant::now() < until {
                let other = self.held_until.lock().unwrap().replace(until);
                assert!(
                    other.is_none_or(|other| other <= Instant::now()),
                    "two clients hold the lock"
                );
                sleep(Duration::from_millis(1)).await;
                self.sold.fetch_add(1, Ordering::SeqCst);
                self.held_until.lock().unwrap().take_if(|held| *held == until);
            }
            match reply.as_deref() {
                Some("null") => sleep(Duration::from_millis(5)).await,
                _ => self.release(&value).await,
            }
        }
    }
}

#[tokio::test]
async fn leader_kills_never_let_two_redis_clients_hold_a_lock() {
    let mut cluster = start(TestCluster::configure("")).await;
    let ids = cluster.ids();
    let mut holder = client(&cluster, ids[0]).await;
    let reply = holder.command("SET kept value-of-the-holder NX PX 600000").await;
    assert_eq!(reply.unwrap(), "+OK");
    let (held_until, sold, stop) = (
        Arc::default(),
        Arc::<AtomicU64>::default(),
        Arc::<AtomicBool>::default(),
    );
    let addresses: Vec<_> = ids.iter().map(|id| address(&cluster, *id)).collect();
    let buyers: Vec<_> = (0..BUYERS)
        .map(|name| {
            let buyer = Buyer {
                addresses: addresses.clone(),
                number: name,
                connection: None,
                held_until: Arc::clone(&held_until),
                sold: sold.clone(),
                stop: stop.clone(),
            };
            tokio::spawn(buyer.run(name))
        })
        .collect();
    for _ in 0..rounds(3) {
        let before = sold.load(Ordering::SeqCst);
        eventually("tickets are sold", async || {
            sold.load(Ordering::SeqCst) > before + 20
        })
        .await;
        let leader = cluster.leader_now().await;
        cluster.kill(leader).await.unwrap();
        let before = sold.load(Ordering::SeqCst);
        eventually("tickets are sold without the dead leader", async || {
            sold.load(Ordering::SeqCst) > before + 20
        })
        .await;
        cluster.up(START_TIMEOUT).await.unwrap();
    }
    stop.store(true, Ordering::SeqCst);
    for buyer in buyers {
        buyer.await.expect("no two clients held the lock");
    }
    for id in ids {
        let mut other = client(&cluster, id).await;
        let reply = other
            .command("SET kept another-value-of-another NX PX 1000")
            .await;
        assert_eq!(reply.unwrap(), "null", "node {id}");
        assert_eq!(other.command("GET kept").await.unwrap(), "value-of-the-holder");
    }
}

#[tokio::test]
async fn waiter_over_http_is_not_overtaken_by_set_nx() {
    let cluster = start(TestCluster::configure("")).await;
    let ids = cluster.ids();
    let mut holder = client(&cluster, ids[0]).await;
    assert_eq!(holder.command("SET job mine NX PX 60000").await.unwrap(), "+OK");
    let (mut waiter, session) = cluster.session(ids[1], "waiter").await;
    let id = session.id().to_owned();
    let waiting = tokio::spawn(async move {
        let granted = waiter.acquire(&id, "redis/job").await;
        (waiter, id, granted)
    });
    cluster.wait_queued(ids[1], "redis/job", 1).await;
    // As fast as it can, at all nodes, from before the release until after the grant.
    let stop = Arc::new(AtomicBool::new(false));
    let mut overtakers = Vec::new();
    for id in cluster.ids() {
        let (mut other, stop) = (client(&cluster, id).await, stop.clone());
        overtakers.push(tokio::spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                assert_eq!(other.command("SET job other NX PX 60000").await.unwrap(), "null");
            }
        }));
    }
    let busy = holder.command("SET job replaced").await.unwrap();
    assert!(busy.starts_with("-BUSY"), "{busy}");
    assert_eq!(holder.command("DEL job").await.unwrap(), ":1");
    let (mut waiter, id, granted) = timeout(TIMEOUT, waiting).await.unwrap().unwrap();
    let granted = granted.unwrap();
    stop.store(true, Ordering::SeqCst);
    for overtaker in overtakers {
        overtaker.await.expect("no client overtook the waiter");
    }
    // A holder in a session has no value, and no Redis client replaces it.
    eventually("all see the holder", async || {
        holder.command("GET job").await.unwrap().is_empty()
    })
    .await;
    assert!(holder.command("DEL job").await.unwrap().starts_with("-BUSY"));
    waiter.release(&id, &granted).await.unwrap();
    assert_eq!(holder.command("SET job mine NX PX 60000").await.unwrap(), "+OK");
}

#[tokio::test]
async fn same_value_is_confirmed_by_each_node_once() {
    let cluster = start(TestCluster::configure("[redis]\nredlock = true\n")).await;
    let mut clients = BTreeMap::new();
    for id in cluster.ids() {
        clients.insert(id, client(&cluster, id).await);
    }
    // A client of Redlock over all nodes, which then releases at all of them.
    let value = "7d5f2c9e41b0a8634f1e";
    let set = format!("SET stock {value} NX PX 60000");
    for client in clients.values_mut() {
        assert_eq!(client.command(&set).await.unwrap(), "+OK");
    }
    for client in clients.values_mut() {
        assert_eq!(
            client.command(&set).await.unwrap(),
            "null",
            "as an independent Redis"
        );
    }
    let release = format!("EVALSHA {DELETE_IF_EQUAL} 1 stock {value}");
    for expected in [":1", ":0"] {
        for client in clients.values_mut() {
            assert_eq!(client.command(&release).await.unwrap(), expected);
        }
    }
    // A value that is not random excludes the others, as in Redis.
    let mut replies = Vec::new();
    for client in clients.values_mut() {
        replies.push(client.command("SET stock 1 NX PX 60000").await.unwrap());
        replies.push(client.command("SETNX stock 1").await.unwrap());
    }
    assert_eq!(replies, ["+OK", ":0", "null", ":0", "null", ":0"]);
}

#[tokio::test]
async fn tokens_and_policies_hold_over_tls() {
    let cluster = TestCluster::configure_secured_with(ACCESS_REQUIRED);
    let mut cluster = start(cluster).await;
    let id = cluster.ids()[0];
    // Nobody is served before the cluster is secured.
    let refused = async {
        let mut early = Client::connect(&address(&cluster, id), cluster.tls()).await?;
        early.command("PING").await
    };
    assert!(refused.await.is_err());
    cluster.secure().await.unwrap();
    let admin = LockClient::builder(cluster.http_addresses())
        .tls(cluster.tls().expect("it has certificates").clone())
        .token(cluster.credentials().token.clone().expect("it is secured"))
        .build()
        .unwrap();
    let access = admin.access();
    let grant = "lock:redis/orders".parse().unwrap();
    access.set_role("worker", &[grant]).await.unwrap();
    let made = access.create_token("worker", "", None).await.unwrap();
    let token = made.token.expose().to_owned();

    let mut plain = Client::connect(&address(&cluster, id), None).await.unwrap();
    let reply = plain.command("PING").await;
    // An alert of TLS, or nothing.
    let is_refused = reply.as_deref().map_or(true, |reply| reply.starts_with('\u{15}'));
    assert!(is_refused, "{reply:?}");
    let mut worker = None;
    eventually("the node knows that the cluster is secured", async || {
        let connected = Client::connect(&address(&cluster, id), cluster.tls()).await;
        worker = connected.ok();
        match &mut worker {
            Some(worker) => worker.command("PING").await.is_ok(),
            None => false,
        }
    })
    .await;
    let mut worker = worker.unwrap();
    let reply = async |worker: &mut Client, command: &str| worker.command(command).await.unwrap();
    let set = "SET orders/1 mine NX PX 60000";
    assert_eq!(reply(&mut worker, set).await, "-NOAUTH Authentication required.");
    assert!(reply(&mut worker, "AUTH wrong").await.starts_with("-WRONGPASS"));
    assert_eq!(reply(&mut worker, &format!("AUTH worker {token}")).await, "+OK");
    assert_eq!(reply(&mut worker, set).await, "+OK");
    assert_eq!(reply(&mut worker, "GET orders/1").await, "mine");
    for command in [
        "SET stock mine NX PX 60000",
        "GET stock",
        "DEL stock",
        "TTL stock",
        "FLUSHDB",
    ] {
        let refused = reply(&mut worker, command).await;
        assert!(refused.starts_with("-NOPERM"), "{command}: {refused}");
    }
    // Another worker has the right to the lock, but not to the lease of this one.
    let other = access.create_token("worker", "", None).await.unwrap();
    let mut second = client(&cluster, id).await;
    let auth = format!("AUTH {}", other.token.expose());
    assert_eq!(reply(&mut second, &auth).await, "+OK");
    for command in [
        "DEL orders/1",
        "PEXPIRE orders/1 1000",
        "SET orders/1 stolen",
        "SET orders/1 mine PX 60000",
    ] {
        let refused = reply(&mut second, command).await;
        assert!(refused.starts_with("-NOPERM"), "{command}: {refused}");
    }
    assert_eq!(reply(&mut worker, "RESET").await, "+RESET");
    assert_eq!(
        reply(&mut worker, "GET orders/1").await,
        "-NOAUTH Authentication required."
    );
    // A revoked token has no rights, on connections that are open, too.
    access.revoke_token(&other.id).await.unwrap();
    eventually("the node has applied the revocation", async || {
        reply(&mut second, "GET orders/1").await.starts_with("-NOAUTH")
    })
    .await;
}

#[tokio::test]
async fn key_of_a_dead_client_expires_and_a_wait_ends_with_its_connection() {
    let cluster = start(TestCluster::configure("")).await;
    let ids = cluster.ids();
    let mut holder = client(&cluster, ids[0]).await;
    assert_eq!(holder.command("SET lock:x gone NX PX 1500").await.unwrap(), "+OK");
    // As python-redis-lock waits; and one whose client does not wait for it.
    let mut impatient = client(&cluster, ids[1]).await;
    impatient
        .0
        .write_all(b"BLPOP lock-signal:x 100000\r\n")
        .await
        .unwrap();
    drop(impatient);
    let mut waiter = client(&cluster, ids[2]).await;
    assert_eq!(waiter.command("BLPOP lock-signal:x 60").await.unwrap(), "*2");
    eventually("the connection of the impatient client has ended", async || {
        let metrics = cluster.send(ids[1], "GET", "/metrics", &Value::Null).await;
        let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
        metrics.contains("lockgate_connections{door=\"redis\"} 0")
    })
    .await;
}
