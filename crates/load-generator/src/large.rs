//! Shared parts of the measurements of large states: a tree of many znodes, continuous writers, and readers
//! that detect when a node blocks them. The module measures nothing by itself.

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

/// Data bytes of each znode.
pub const DATA_BYTES: usize = 100;

/// Number of znodes per parent.
const SIBLINGS: u64 = 1000;

/// Number of creates per transaction: the maximum.
const OPS: u64 = 1000;

/// Number of parallel transactions: enough to keep the leader busy.
const FILLERS: u64 = 4;

/// Total time of a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Response timeout after which a client switches to another node.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval of reads.
const READ_INTERVAL: Duration = Duration::from_millis(1);

/// Opens the cluster in `dir`, or creates one of three nodes on free ports.
pub fn cluster_in(dir: &Path) -> anyhow::Result<LocalCluster> {
    let executable = std::env::current_exe().context("finding this program's own file")?;
    match LocalCluster::open_plain(dir, &executable) {
        Ok(cluster) => Ok(cluster),
        Err(_) => LocalCluster::create(dir, &executable, 3, Ports::Free, ""),
    }
}

/// Returns the number of znodes as a node sees it.
pub async fn count(node: &str) -> anyhow::Result<u64> {
    let response = http_client::request(node, "GET", "/v1/znodes/?descendants=true", "").await?;
    response.json()["descendants"]
        .as_u64()
        .with_context(|| format!("{node} does not report the number of znodes"))
}

/// Creates `znodes` znodes of [`DATA_BYTES`] bytes through `nodes`, a thousand per parent, unless there are
/// as many. Returns the duration.
pub async fn fill(nodes: &[String], znodes: u64) -> anyhow::Result<Duration> {
    let begin = Instant::now();
    let client = || ApiClient::new(nodes, 0, CALL_TIMEOUT);
    // Several runs on one directory share the znodes of the first one.
    if count(client().node()).await? >= znodes {
        return Ok(begin.elapsed());
    }
    let parents = znodes.div_ceil(SIBLINGS);
    let created = json!({ "parents": true, "data": "", "request_id": request_id() });
    client()
        .call("POST", "/v1/znodes/large/0", &created, RESPONSE_TIMEOUT)
        .await?;
    let mut ops: Vec<Value> = (1..parents)
        .map(|parent| json!({ "create": { "path": format!("/large/{parent}"), "data": "" } }))
        .collect();
    while !ops.is_empty() {
        let some: Vec<Value> = ops.drain(..ops.len().min(OPS as usize)).collect();
        let body = json!({ "ops": some, "request_id": request_id() });
        client().call("POST", "/v1/txn", &body, RESPONSE_TIMEOUT).await?;
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
                    client.call("POST", "/v1/txn", &body, RESPONSE_TIMEOUT).await?;
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

/// Clients that write without a pause and measure the longest time without an acknowledgement.
pub struct Writers {
    stop: Arc<AtomicBool>,
    progress: Arc<Mutex<WriteProgress>>,
    tasks: JoinSet<anyhow::Result<()>>,
}

struct WriteProgress {
    last: Instant,
    longest: Duration,
    count: u64,
}

impl Writers {
    /// Starts writers at `nodes`; each sets the data of a znode of its own.
    pub async fn start(nodes: &[String], writers: usize) -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let progress = Arc::new(Mutex::new(WriteProgress {
            last: Instant::now(),
            longest: Duration::ZERO,
            count: 0,
        }));
        let run = request_id();
        let mut tasks = JoinSet::new();
        for writer in 0..writers {
            let mut client = ApiClient::new(nodes, writer, CALL_TIMEOUT);
            let path = format!("/v1/znodes/writers/{run}/{writer}");
            let body = json!({ "parents": true, "data": "", "request_id": request_id() });
            client.call("POST", &path, &body, RESPONSE_TIMEOUT).await?;
            let (stop, progress) = (stop.clone(), progress.clone());
            tasks.spawn(
                async move {
                    let data = "y".repeat(DATA_BYTES);
                    while !stop.load(Ordering::Relaxed) {
                        let body = json!({ "data": data, "request_id": request_id() });
                        client.call("PUT", &path, &body, RESPONSE_TIMEOUT).await?;
                        progress.lock().acknowledged();
                    }
                    Ok(())
                }
                .boxed(),
            );
        }
        Ok(Self {
            stop,
            progress,
            tasks,
        })
    }

    /// Begins the measurement and drops earlier observations.
    pub fn begin(&self) {
        let mut progress = self.progress.lock();
        progress.last = Instant::now();
        progress.longest = Duration::ZERO;
        progress.count = 0;
    }

    /// Returns the number of acknowledged writes since `begin`, and the longest time without one.
    pub fn so_far(&self) -> (u64, Duration) {
        let progress = self.progress.lock();
        (progress.count, progress.longest.max(progress.last.elapsed()))
    }

    /// Stops the writers and returns the first error of any of them.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.context("a writer")??;
        }
        Ok(())
    }
}

impl WriteProgress {
    fn acknowledged(&mut self) {
        self.longest = self.longest.max(self.last.elapsed());
        self.last = Instant::now();
        self.count += 1;
    }
}

/// Reader that measures the longest duration of a local read at one node. Failed reads do not count, so a
/// node that does not respond yet is ignored.
pub struct Reader {
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<Duration>,
}

impl Reader {
    /// Starts to read at `node`.
    pub fn start(node: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (node, stopped) = (node.to_owned(), stop.clone());
        let task = tokio::spawn(
            async move {
                let mut longest = Duration::ZERO;
                'connect: while !stopped.load(Ordering::Relaxed) {
                    let Ok(mut connection) = http_client::Connection::connect(&node).await else {
                        tokio::time::sleep(READ_INTERVAL).await;
                        continue;
                    };
                    while !stopped.load(Ordering::Relaxed) {
                        let sent = Instant::now();
                        if connection.send("GET", "/v1/znodes/zookeeper", "").await.is_err() {
                            continue 'connect;
                        }
                        longest = longest.max(sent.elapsed());
                        tokio::time::sleep(READ_INTERVAL).await;
                    }
                }
                longest
            }
            .boxed(),
        );
        Self { stop, task }
    }

    /// Stops the reader and returns the longest duration of a read.
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
    tracing::info!(znodes = found, ?took, "bench: the tree is filled");
    Ok(())
}

/// Returns the total size of the files below a directory in bytes.
pub fn bytes_below(dir: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let entry = entry?;
        // A file may be deleted at this moment.
        let Ok(metadata) = entry.metadata() else { continue };
        bytes += match metadata.is_dir() {
            true => bytes_below(&entry.path())?,
            false => metadata.len(),
        };
    }
    Ok(bytes)
}
