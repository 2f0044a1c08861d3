//! A cluster in this process whose nodes serve Redis clients, and a client.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use lock_node::{MemberAddress, Node, NodeConfig};
use redis_front::{Front, Protection, RedisConfig, serve};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Timeout of every step; an intact step takes less even on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Poll interval of conditions.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

pub struct Cluster {
    pub served: Vec<Served>,
    _dir: TempDir,
}

pub struct Served {
    pub node: Node,
    address: SocketAddr,
    stop: CancellationToken,
    serving: JoinHandle<()>,
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

impl Cluster {
    pub async fn start(size: u64) -> Self {
        Self::start_with(size, RedisConfig::default()).await
    }

    /// Starts three nodes that take part in Redlock.
    pub async fn start_for_redlock() -> Self {
        let config = RedisConfig {
            redlock: true,
            ..RedisConfig::default()
        };
        Self::start_with(3, config).await
    }

    pub async fn start_with(size: u64, redis: RedisConfig) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (mut listeners, mut members) = (Vec::new(), BTreeMap::new());
        for id in 1..=size {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let peer = listener.local_addr().unwrap().to_string();
            // No node serves HTTP, but the addresses of members have to be distinct.
            let http = peer.clone();
            members.insert(id, MemberAddress { peer, http });
            listeners.push((id, listener));
        }
        let mut served = Vec::new();
        for (id, peers) in listeners {
            let mut config = NodeConfig::new(id, "test", members.clone(), dir.path().join(format!("{id}")));
            config.raft.timing.heartbeat = Duration::from_millis(30);
            config.raft.timing.election_min = Duration::from_millis(150);
            config.raft.timing.election_max = Duration::from_millis(300);
            let node = Node::start_on(config, peers).await.unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let stop = CancellationToken::new();
            let front = Front::new(node.clone(), redis.clone());
            let serving = tokio::spawn(serve(listener, front, Protection::Trusted, stop.clone()));
            served.push(Served {
                node,
                address,
                stop,
                serving,
            });
        }
        for served in &served {
            until("a node is ready", || served.node.not_ready().is_none()).await;
        }
        Self { served, _dir: dir }
    }

    pub async fn client(&self, index: usize) -> Client {
        let stream = TcpStream::connect(self.served[index].address).await.unwrap();
        Client(BufReader::new(stream))
    }

    pub async fn stop(self) {
        for served in self.served {
            served.stop.cancel();
            in_time("the node stops", served.node.stop()).await;
            in_time("the front end stops", served.serving).await.unwrap();
        }
    }
}

pub struct Client(BufReader<TcpStream>);

impl Client {
    pub async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    pub async fn line(&mut self) -> String {
        let mut line = String::new();
        in_time("a reply", self.0.read_line(&mut line)).await.unwrap();
        line.trim_end().to_owned()
    }

    /// Reads a reply and writes it in one line.
    pub async fn reply(&mut self) -> String {
        let line = self.line().await;
        let (kind, rest) = line.split_at(1);
        match kind {
            "$" if rest == "-1" => "null".to_owned(),
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>().unwrap() + 2];
                in_time("a value", self.0.read_exact(&mut bytes)).await.unwrap();
                format!("{:?}", String::from_utf8(bytes).unwrap().trim_end())
            }
            "*" => {
                let mut items = Vec::new();
                for _ in 0..rest.parse::<usize>().unwrap() {
                    items.push(Box::pin(self.reply()).await);
                }
                format!("[{}]", items.join(" "))
            }
            _ => line,
        }
    }

    pub async fn command(&mut self, command: &str) -> String {
        self.send(format!("{command}\r\n").as_bytes()).await;
        self.reply().await
    }

    /// Sends commands and compares the replies: `COMMAND => REPLY` in each line. A reply that ends with `…` is compared up to there.
    pub async fn script(&mut self, script: &str) {
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (command, expected) = line.split_once(" => ").unwrap();
            let reply = self.command(command).await;
            let is_expected = match expected.strip_suffix('…') {
                Some(begin) => reply.starts_with(begin),
                None => reply == expected,
            };
            assert!(is_expected, "{line}, but the reply is {reply}");
        }
    }
}
