//! What the measurements of large states share: a tree of many znodes, writers that never stop, and readers that
//! notice when a node holds them up. It measures nothing by itself.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use cli_support::api_client::{ApiClient, request_id};
use cli_support::http_client;
use futures_util::FutureExt as _;
use local_cluster::{LocalCluster, Ports, START_TIMEOUT};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Bytes of data in each znode.
pub const DATA_BYTES: usize = 100;

/// Below each parent.
const SIBLINGS: u64 = 1000;

/// Creations in one transaction: the most that there may be.
const OPS: u64 = 1000;

/// Transactions under way at a time: enough to keep the leader busy.
const FILLERS: u64 = 4;

/// No request may take so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a writer waits for its answer before it asks another node.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// How often readers look.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The cluster in `dir`, or a new one of three nodes on free ports.
pub fn cluster_in(dir: &Path) -> anyhow::Result<LocalCluster> {
    let executable = std::env::current_exe().context("finding this program's own file")?;
    match LocalCluster::open_plain(dir, &executable) {
        Ok(cluster) => Ok(cluster),
        Err(_) => LocalCluster::create(dir, &executable, 3, Ports::Free, ""),
    }
}

/// How many znodes there are below the root, as a node sees it.
pub async fn count(node: &str) -> anyhow::Result<u64> {
    let answer = http_client::request(node, "GET", "/v1/znodes/?descendants=true", "").await?;
    answer.json()["descendants"]
        .as_u64()
        .with_context(|| format!("{node} does not tell how many znodes there are"))
}

/// Creates so many znodes of [`DATA_BYTES`] bytes, in parents of a thousand, through `nodes`, unless there are as many.
pub async fn fill(nodes: &[String], znodes: u64) -> anyhow::Result<Duration> {
    let begin = Instant::now();
    let client = || ApiClient::new(nodes, 0, PATIENCE);
    // Several runs on one directory share what the first has made.
    if count(client().node()).await? >= znodes {
        return Ok(begin.elapsed());
    }
    let parents = znodes.div_ceil(SIBLINGS);
    let created = json!({ "parents": true, "data": "", "request_id": request_id() });
    client()
        .call("POST", "/v1/znodes/large/0", &created, ANSWER_WITHIN)
        .await?;
    let mut ops: Vec<Value> = (1..parents)
        .map(|parent| json!({ "create": { "path": format!("/large/{parent}"), "data": "" } }))
        .collect();
    while !ops.is_empty() {
        let some: Vec<Value> = ops.drain(..ops.len().min(OPS as usize)).collect();
        let body = json!({ "ops": some, "request_id": request_id() });
        client().call("POST", "/v1/txn", &body, ANSWER_WITHIN).await?;
    }
    let data = "x".repeat(DATA_BYTES);
    let next = Arc::new(AtomicU64::new(0));
    let mut fillers = JoinSet::new();
    for _ in 0..FILLERS {
        let (mut client, data, next) = (client(), data.clone(), next.clone());
        fillers.spawn(
            async move {
                loop {
                    let first = next.fetch_add(OPS, Ordering::Relaxed);
                    if first >= znodes {
                        return Ok::<_, anyhow::Error>(());
                    }
                    let ops: Vec<Value> = (first..(first + OPS).min(znodes))
                        .map(|number| {
                            let path = format!("/large/{}/{number:012}", number / SIBLINGS);
                            json!({ "create": { "path": path, "data": data } })
                        })
                        .collect();
                    let body = json!({ "ops": ops, "request_id": request_id() });
                    client.call("POST", "/v1/txn", &body, ANSWER_WITHIN).await?;
                }
            }
            .boxed(),
        );
    }
    while let Some(filled) = fillers.join_next().await {
        filled.context("a task that fills the tree")??;
    }
    Ok(begin.elapsed())
}

/// Clients that write without a pause, and notice how long nobody got an answer.
pub struct Writers {
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
    tasks: JoinSet<anyhow::Result<()>>,
}

struct Seen {
    last: Instant,
    longest: Duration,
    count: u64,
}

impl Writers {
    /// Starts so many at `nodes`; each sets data of a znode of its own.
    pub async fn start(nodes: &[String], writers: usize) -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::new(Mutex::new(Seen {
            last: Instant::now(),
            longest: Duration::ZERO,
            count: 0,
        }));
        let run = request_id();
        let mut tasks = JoinSet::new();
        for writer in 0..writers {
            let mut client = ApiClient::new(nodes, writer, PATIENCE);
            let path = format!("/v1/znodes/writers/{run}/{writer}");
            let body = json!({ "parents": true, "data": "", "request_id": request_id() });
            client.call("POST", &path, &body, ANSWER_WITHIN).await?;
            let (stop, seen) = (stop.clone(), seen.clone());
            tasks.spawn(
                async move {
                    let data = "y".repeat(DATA_BYTES);
                    while !stop.load(Ordering::Relaxed) {
                        let body = json!({ "data": data, "request_id": request_id() });
                        client.call("PUT", &path, &body, ANSWER_WITHIN).await?;
                        seen.lock().acknowledged();
                    }
                    Ok(())
                }
                .boxed(),
            );
        }
        Ok(Self { stop, seen, tasks })
    }

    /// Begins to measure: what was before does not count.
    pub fn begin(&self) {
        let mut seen = self.seen.lock();
        seen.last = Instant::now();
        seen.longest = Duration::ZERO;
        seen.count = 0;
    }

    /// How many writes were acknowledged since, and the longest time in which none was.
    pub fn so_far(&self) -> (u64, Duration) {
        let seen = self.seen.lock();
        (seen.count, seen.longest.max(seen.last.elapsed()))
    }

    /// Ends them. An error is one that a client got.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.context("a writer")??;
        }
        Ok(())
    }
}

impl Seen {
    fn acknowledged(&mut self) {
        self.longest = self.longest.max(self.last.elapsed());
        self.last = Instant::now();
        self.count += 1;
    }
}

/// The longest time that a local read of one node had to wait, measured until the answer is dropped or asked for. A
/// node that does not answer yet does not count.
pub struct Reader {
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<Duration>,
}

impl Reader {
    /// Reads at `node` from now on.
    pub fn start(node: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (node, stopped) = (node.to_owned(), stop.clone());
        let task = tokio::spawn(
            async move {
                let mut longest = Duration::ZERO;
                'connect: while !stopped.load(Ordering::Relaxed) {
                    let Ok(mut connection) = http_client::Connection::connect(&node).await else {
                        tokio::time::sleep(LOOK_EVERY).await;
                        continue;
                    };
                    while !stopped.load(Ordering::Relaxed) {
                        let asked = Instant::now();
                        if connection.send("GET", "/v1/znodes/zookeeper", "").await.is_err() {
                            continue 'connect;
                        }
                        longest = longest.max(asked.elapsed());
                        tokio::time::sleep(LOOK_EVERY).await;
                    }
                }
                longest
            }
            .boxed(),
        );
        Self { stop, task }
    }

    /// The longest wait.
    pub async fn stop(self) -> anyhow::Result<Duration> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.context("a reader")
    }
}

/// Starts all nodes and fills the tree.
pub async fn prepare(cluster: &mut LocalCluster, znodes: u64) -> anyhow::Result<()> {
    cluster.up(START_TIMEOUT).await?;
    let leader = cluster.leader(START_TIMEOUT).await?;
    let took = fill(&[cluster.node(leader)?.http.clone()], znodes).await?;
    let found = count(&cluster.node(leader)?.http).await?;
    ensure!(found >= znodes, "{found} znodes instead of {znodes}");
    tracing::info!(znodes = found, ?took, "the tree is filled");
    Ok(())
}

/// How many bytes the files below a directory have.
pub fn bytes_below(dir: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let entry = entry?;
        // A file may go while it is looked at.
        let Ok(metadata) = entry.metadata() else { continue };
        bytes += match metadata.is_dir() {
            true => bytes_below(&entry.path())?,
            false => metadata.len(),
        };
    }
    Ok(bytes)
}
