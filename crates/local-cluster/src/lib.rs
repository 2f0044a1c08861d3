//! Launcher for a cluster of node processes on this machine: configures, starts, observes, stops and kills them.
//!
//! The nodes are processes of a given executable: `lockgate`, or another program that runs a node when it is called with `serve --config
//! FILE`. They are detached from the process that starts them. The cluster's directory has everything that is known about a cluster
//! (see [`layout`]); nothing here stays running.
//!
//! This crate calls nodes over HTTP and writes their configurations. It must know neither the server library that runs in a node nor
//! the commands that use it.

mod certificates;
pub mod layout;
mod learners;
pub mod members;
mod mixed_up;
pub mod process;
pub mod secured;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use lock_client::Token;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use raft_node::{Alarm, ClusterStatus, NodeId, Role, SnapshotMade};
use serde::Serialize;
use tokio::time::Instant;
use transport_security::ClientTls;

use cli_support::credentials::Credentials;
use cli_support::http_client;
pub use layout::{HTTP_BASE_PORT, LocalNode, MAX_NODES, PEER_BASE_PORT, Ports, ZOOKEEPER_BASE_PORT};
pub use mixed_up::mixed_up;

/// How often nodes are asked whether they serve. They cannot tell: there is no connection to tell it over.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// A living node answers such a question at once; one that takes longer is not of use now.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// How often it is checked, while nodes are awaited, that all of them are of one cluster.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// How many nodes start, elect and serve within this even on a machine that is busy with something else.
pub const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A process that is killed has closed its sockets within this after it has given its claim up, on however busy a machine.
const SOCKETS_CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// After SIGTERM a node drains for at most its own `http.drain_timeout_ms`; then it gets SIGKILL.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(15);

/// So much of the end of a node's log is shown when the node does not start.
const LOG_TAIL_BYTES: u64 = 2048;

/// How a node was found.
#[derive(Debug)]
enum Found {
    /// It serves.
    Ready,
    /// Its process lives and does not serve yet, for this reason.
    Starting(String),
    /// Nobody runs it.
    Gone,
}

/// A cluster of node processes on this machine.
#[derive(Debug)]
pub struct LocalCluster {
    nodes: BTreeMap<NodeId, LocalNode>,
    executable: PathBuf,
    /// Processes that this program has started: it has to collect them when they end.
    children: BTreeMap<NodeId, Child>,
    /// How its nodes are called, and who calls them.
    credentials: Credentials,
}

/// One node as `lockgate cluster status` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeReport {
    /// Its id.
    pub id: NodeId,
    /// Its process, if it lives.
    pub pid: Option<i32>,
    /// Its part in the cluster, if it answers.
    pub role: Option<Role>,
    /// The id of the cluster that its data directory belongs to, if it answers and has one.
    pub cluster_id: Option<String>,
    /// Whether it can serve.
    pub ready: bool,
    /// What it says a person should look at, in the whole cluster.
    pub alarms: Vec<Alarm>,
    /// Where it serves HTTP.
    pub url: String,
    /// Where it listens for its peers.
    pub peer: String,
    /// Where its log, vote and snapshots are.
    pub data_dir: PathBuf,
    /// Where it logs to.
    pub log: PathBuf,
}

impl LocalCluster {
    /// The cluster in `dir`, whose nodes are processes of `executable`. Fails if there is none.
    pub fn open(dir: &Path, executable: &Path) -> anyhow::Result<Self> {
        let dir = dir
            .canonicalize()
            .with_context(|| format!("no cluster in {}", dir.display()))?;
        let nodes = layout::read(&dir)?;
        ensure!(!nodes.is_empty(), "no cluster in {}", dir.display());
        let credentials = Credentials {
            tls: certificates::client(&dir)?,
            token: secured::token(&dir)?,
            insecure: false,
        };
        Ok(Self::of(nodes, executable, credentials))
    }

    /// As [`LocalCluster::open`], for what does not speak TLS and shows no token.
    pub fn open_plain(dir: &Path, executable: &Path) -> anyhow::Result<Self> {
        let cluster = Self::open(dir, executable)?;
        ensure!(
            !cluster.is_secured(),
            "the cluster in {} speaks TLS, and this does not",
            dir.display()
        );
        ensure!(
            cluster.credentials.token.is_none(),
            "the cluster in {} wants to know who calls, and this does not tell",
            dir.display()
        );
        Ok(cluster)
    }

    /// Configures a new cluster in `dir`. Fails if there is one already.
    pub fn create(
        dir: &Path,
        executable: &Path,
        count: u64,
        ports: Ports,
        settings: &str,
    ) -> anyhow::Result<Self> {
        ensure!(
            layout::read(dir)?.is_empty(),
            "there is a cluster in {} already",
            dir.display()
        );
        Ok(Self::of(
            layout::create(dir, count, ports, settings)?,
            executable,
            Credentials::default(),
        ))
    }

    /// The same, with certificates: of an authority, of the nodes and of a client. The nodes speak TLS only, with everybody.
    pub fn create_secured(
        dir: &Path,
        executable: &Path,
        count: u64,
        ports: Ports,
        settings: &str,
    ) -> anyhow::Result<Self> {
        let settings = format!("{settings}{}", certificates::SETTINGS);
        let mut cluster = Self::create(dir, executable, count, ports, &settings)?;
        certificates::make(dir)?;
        for node in cluster.nodes() {
            certificates::make_for(node)?;
        }
        cluster.credentials.tls = certificates::client(dir)?;
        Ok(cluster)
    }

    /// Whether its nodes speak TLS.
    pub fn is_secured(&self) -> bool {
        self.credentials.tls.is_some()
    }

    /// How its nodes are called; none: without TLS.
    pub fn tls(&self) -> Option<&ClientTls> {
        self.credentials.tls.as_ref()
    }

    /// How its nodes are called, and who calls them: its administrator, if it is secured.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Where a node serves HTTP, with the scheme.
    pub fn url_of(&self, node: &LocalNode) -> String {
        let scheme = if self.is_secured() { "https" } else { "http" };
        format!("{scheme}://{}", node.http)
    }

    fn of(nodes: Vec<LocalNode>, executable: &Path, credentials: Credentials) -> Self {
        Self {
            credentials,
            nodes: nodes.into_iter().map(|node| (node.id, node)).collect(),
            executable: executable.to_owned(),
            children: BTreeMap::new(),
        }
    }

    /// Who calls its nodes from now on.
    fn show(&mut self, token: Token) {
        self.credentials.token = Some(token);
    }

    /// The nodes, by id.
    pub fn nodes(&self) -> impl Iterator<Item = &LocalNode> {
        self.nodes.values()
    }

    /// One node.
    pub fn node(&self, id: NodeId) -> anyhow::Result<&LocalNode> {
        self.nodes
            .get(&id)
            .with_context(|| format!("there is no node {id}"))
    }

    /// All ids.
    pub fn ids(&self) -> Vec<NodeId> {
        self.nodes.keys().copied().collect()
    }

    /// Where the nodes serve HTTP, by id: `host:port`.
    pub fn http_addresses(&self) -> Vec<String> {
        self.nodes.values().map(|node| node.http.clone()).collect()
    }

    /// Where the nodes that live serve HTTP: `host:port`.
    pub fn living_http(&self) -> anyhow::Result<Vec<String>> {
        let mut living = Vec::new();
        for node in self.nodes() {
            if self.pid(node.id)?.is_some() {
                living.push(node.http.clone());
            }
        }
        ensure!(
            !living.is_empty(),
            "no node runs; `lockgate cluster up` starts them"
        );
        Ok(living)
    }

    /// The process of a node, if it lives.
    pub fn pid(&self, id: NodeId) -> anyhow::Result<Option<Pid>> {
        let file = self.node(id)?.pid_file();
        process::claimant(&file).with_context(|| file.display().to_string())
    }

    /// Starts those nodes that do not live, from what is on their disks, and waits until all serve. Says which
    /// ones were started. Fails if their data directories are of several clusters.
    pub async fn up(&mut self, timeout: Duration) -> anyhow::Result<Vec<NodeId>> {
        let mut started = Vec::new();
        for id in self.ids() {
            if self.pid(id)?.is_none() {
                self.wait_addresses_free(id).await?;
                self.start(id)?;
                started.push(id);
            }
        }
        let deadline = Instant::now() + timeout;
        let mut awaited = self.ids();
        let mut checked = Instant::now();
        // All are looked at in turn: one that serves only when the others do must not be what these are waiting for.
        while !awaited.is_empty() {
            for id in std::mem::take(&mut awaited) {
                match self.look_at(id).await? {
                    Found::Ready => continue,
                    // One that was about to end, after SIGKILL for instance, was there a moment ago.
                    Found::Gone => {
                        self.wait_addresses_free(id).await?;
                        self.start(id)?;
                        started.push(id);
                    }
                    Found::Starting(reason) => self.still_time(id, &reason, deadline, timeout)?,
                }
                awaited.push(id);
            }
            if awaited.is_empty() || checked.elapsed() >= CHECK_EVERY {
                self.ensure_one_cluster().await?;
                checked = Instant::now();
            }
            if !awaited.is_empty() {
                tokio::time::sleep(ASK_EVERY).await;
            }
        }
        started.sort_unstable();
        Ok(started)
    }

    async fn ensure_one_cluster(&self) -> anyhow::Result<()> {
        match mixed_up(&self.status().await?) {
            Some(told) => bail!(told),
            None => Ok(()),
        }
    }

    /// Waits until nobody listens at a node's addresses, but not for long: a process that ends gives its claim and its sockets
    /// back one after the other.
    async fn wait_addresses_free(&self, id: NodeId) -> anyhow::Result<()> {
        let node = self.node(id)?;
        let deadline = Instant::now() + SOCKETS_CLOSE_WITHIN;
        while node
            .addresses()
            .any(|address| layout::check_free(id, address).is_err())
            && Instant::now() < deadline
        {
            tokio::time::sleep(ASK_EVERY).await;
        }
        Ok(())
    }

    /// Starts the process of a node, detached; returns without waiting for it to serve.
    pub fn start(&mut self, id: NodeId) -> anyhow::Result<()> {
        self.start_with(id, &[])
    }

    /// The same, with more variables in the environment of the process.
    pub fn start_with(&mut self, id: NodeId, environment: &[(&str, &str)]) -> anyhow::Result<()> {
        self.collect(id)?;
        let node = self.node(id)?;
        // A stranger at this address would even look like a node that serves, if it is another cluster's.
        for address in node.addresses() {
            layout::check_free(id, address)?;
        }
        let path = node.log_file();
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| path.display().to_string())?;
        let child = Command::new(&self.executable)
            .arg("serve")
            .arg("--config")
            .arg(node.config_file())
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone().with_context(|| path.display().to_string())?)
            .stderr(log)
            // A group of its own: Ctrl-C in the terminal is not meant for the nodes.
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {}", self.executable.display()))?;
        self.children.insert(id, child);
        Ok(())
    }

    /// Waits until the nodes serve: each has a leader and has caught up.
    pub async fn wait_ready(&mut self, ids: &[NodeId], timeout: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + timeout;
        for &id in ids {
            loop {
                match self.look_at(id).await? {
                    Found::Ready => break,
                    Found::Gone => bail!("nobody runs node {id}; its log ends:\n{}", self.log_tail(id)?),
                    Found::Starting(reason) => self.still_time(id, &reason, deadline, timeout)?,
                }
                tokio::time::sleep(ASK_EVERY).await;
            }
        }
        Ok(())
    }

    /// Looks whether a node serves. One that was started here and has ended is an error.
    async fn look_at(&mut self, id: NodeId) -> anyhow::Result<Found> {
        let http = self.node(id)?.http.clone();
        let answer = ask(&http, self.credentials(), "/readyz").await;
        let reason = match answer {
            Ok(answer) if answer.status == 200 => return Ok(Found::Ready),
            Ok(answer) => String::from_utf8_lossy(&answer.body).into_owned(),
            Err(error) => error.to_string(),
        };
        let ended = match self.children.get_mut(&id) {
            Some(child) => child.try_wait().context("waiting for a node's process")?,
            None => None,
        };
        let lives = self.pid(id)?.is_some();
        if let Some(status) = ended {
            self.children.remove(&id);
            // Else somebody else has started the node at the same moment, and was faster.
            ensure!(
                lives,
                "node {id} ended ({status}); its log ends:\n{}",
                self.log_tail(id)?
            );
        }
        // What was started here claims its node only a moment later.
        Ok(if lives || self.children.contains_key(&id) {
            Found::Starting(reason)
        } else {
            Found::Gone
        })
    }

    /// Fails once a node should have served.
    fn still_time(
        &self,
        id: NodeId,
        reason: &str,
        deadline: Instant,
        timeout: Duration,
    ) -> anyhow::Result<()> {
        ensure!(
            Instant::now() < deadline,
            "node {id} does not serve after {} s ({reason}); its log ends:\n{}",
            timeout.as_secs(),
            self.log_tail(id)?
        );
        Ok(())
    }

    /// Waits until a node answers HTTP at all, whether it can serve or not.
    pub async fn wait_listening(&mut self, id: NodeId, timeout: Duration) -> anyhow::Result<()> {
        let http = self.node(id)?.http.clone();
        let deadline = Instant::now() + timeout;
        while ask(&http, self.credentials(), "/healthz").await.is_err() {
            if let Some(child) = self.children.get_mut(&id)
                && let Some(status) = child.try_wait().context("waiting for a node's process")?
            {
                self.children.remove(&id);
                bail!(
                    "node {id} ended ({status}); its log ends:\n{}",
                    self.log_tail(id)?
                );
            }
            ensure!(
                Instant::now() < deadline,
                "node {id} does not answer after {} s; its log ends:\n{}",
                timeout.as_secs(),
                self.log_tail(id)?
            );
            tokio::time::sleep(ASK_EVERY).await;
        }
        Ok(())
    }

    /// Configures one more node, with the settings of the others and the next ports, that waits to be added.
    pub fn configure_new(&mut self, id: NodeId) -> anyhow::Result<LocalNode> {
        let nodes: Vec<LocalNode> = self.nodes.values().cloned().collect();
        let node = layout::add(&nodes, id)?;
        if self.is_secured() {
            certificates::make_for(&node)?;
        }
        self.nodes.insert(id, node.clone());
        Ok(node)
    }

    /// Stops a node that was removed from the cluster, and puts its files out of the way; gives the place.
    pub async fn put_aside(&mut self, id: NodeId, grace: Duration) -> anyhow::Result<PathBuf> {
        self.stop(id, grace).await?;
        self.collect(id)?;
        let aside = layout::put_aside(self.node(id)?)?;
        self.nodes.remove(&id);
        Ok(aside)
    }

    /// What a node thinks of the cluster; `None` if it does not answer.
    pub async fn view_of(&self, id: NodeId) -> anyhow::Result<Option<ClusterStatus>> {
        let http = &self.node(id)?.http;
        match ask(http, self.credentials(), "/v1/cluster").await {
            Ok(answer) if answer.status == 200 => serde_json::from_slice(&answer.body)
                .map(Some)
                .with_context(|| format!("node {id} answered {}", String::from_utf8_lossy(&answer.body))),
            _ => Ok(None),
        }
    }

    /// Has a node write a snapshot, and waits until it is there, however long that takes.
    pub async fn snapshot(&self, id: NodeId) -> anyhow::Result<SnapshotMade> {
        let http = &self.node(id)?.http;
        let answer = http_client::request_as(http, self.credentials(), "POST", "/v1/cluster/snapshot", "")
            .await
            .with_context(|| format!("node {id} does not answer"))?;
        let text = String::from_utf8_lossy(&answer.body);
        ensure!(answer.status == 200, "node {id} made no snapshot: {text}");
        serde_json::from_slice(&answer.body).with_context(|| format!("node {id} answered {text}"))
    }

    /// The leader, as soon as a node says of itself that it is.
    pub async fn leader(&self, timeout: Duration) -> anyhow::Result<NodeId> {
        let deadline = Instant::now() + timeout;
        loop {
            // A deposed leader may still think that it leads; the later term is right.
            let mut leader = None;
            for id in self.ids() {
                if let Some(view) = self.view_of(id).await?
                    && view.role == Role::Leader
                {
                    leader = leader.max(Some((view.term, id)));
                }
            }
            if let Some((_, id)) = leader {
                return Ok(id);
            }
            ensure!(
                Instant::now() < deadline,
                "no leader after {} s",
                timeout.as_secs()
            );
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    /// Every node with its process, part and places.
    pub async fn status(&self) -> anyhow::Result<Vec<NodeReport>> {
        let mut reports = Vec::new();
        for node in self.nodes.values() {
            let pid = self.pid(node.id)?;
            let view = match pid {
                Some(_) => self.view_of(node.id).await?,
                None => None,
            };
            reports.push(NodeReport {
                id: node.id,
                pid: pid.map(Pid::as_raw),
                role: view.as_ref().map(|view| view.role),
                cluster_id: view
                    .as_ref()
                    .map(|view| view.cluster_id.clone())
                    .filter(|id| !id.is_empty()),
                ready: view.as_ref().is_some_and(|view| view.ready),
                alarms: view.map(|view| view.alarms).unwrap_or_default(),
                url: self.url_of(node),
                peer: node.peer.clone(),
                data_dir: node.data_dir(),
                log: node.log_file(),
            });
        }
        Ok(reports)
    }

    /// Kills a node's process with SIGKILL and waits for its end. Says whether there was one.
    pub async fn kill(&mut self, id: NodeId) -> anyhow::Result<bool> {
        let Some(pid) = self.pid(id)? else {
            // A process that was started a moment ago has not claimed its file yet.
            let Some(child) = self.children.get_mut(&id) else {
                return Ok(false);
            };
            child.kill().with_context(|| format!("killing node {id}"))?;
            self.collect(id)?;
            return Ok(true);
        };
        process::send_signal(pid, Signal::SIGKILL).with_context(|| format!("killing node {id}"))?;
        self.wait_ended(id).await?;
        Ok(true)
    }

    /// Kills all at the same moment.
    pub async fn kill_all(&mut self) -> anyhow::Result<()> {
        for id in self.ids() {
            if let Some(pid) = self.pid(id)? {
                process::send_signal(pid, Signal::SIGKILL).with_context(|| format!("killing node {id}"))?;
            }
        }
        for id in self.ids() {
            self.wait_ended(id).await?;
        }
        Ok(())
    }

    /// Asks a node to stop and waits until it has; kills it if it takes longer than `grace`. Says whether it
    /// went by itself.
    pub async fn stop(&mut self, id: NodeId, grace: Duration) -> anyhow::Result<bool> {
        let Some(pid) = self.pid(id)? else { return Ok(true) };
        process::send_signal(pid, Signal::SIGTERM).with_context(|| format!("stopping node {id}"))?;
        let file = self.node(id)?.pid_file();
        let gone = process::wait_unclaimed(&file, grace)
            .await
            .with_context(|| file.display().to_string())?;
        if gone {
            self.collect(id)?;
        } else {
            self.kill(id).await?;
        }
        Ok(gone)
    }

    /// Sends any signal to a node's process, such as SIGSTOP.
    pub fn signal(&self, id: NodeId, signal: Signal) -> anyhow::Result<()> {
        let pid = self.pid(id)?.with_context(|| format!("node {id} does not run"))?;
        process::send_signal(pid, signal).with_context(|| format!("{signal} to node {id}"))
    }

    async fn wait_ended(&mut self, id: NodeId) -> anyhow::Result<()> {
        let file = self.node(id)?.pid_file();
        let gone = process::wait_unclaimed(&file, STOP_TIMEOUT).await?;
        ensure!(gone, "node {id} does not end");
        self.collect(id)
    }

    /// Collects the process of a node if this program had started it, so that no dead process lingers.
    fn collect(&mut self, id: NodeId) -> anyhow::Result<()> {
        match self.children.remove(&id) {
            Some(mut child) => child.wait().map(drop).context("collecting a node's process"),
            None => Ok(()),
        }
    }

    /// The end of what a node has logged.
    pub fn log_tail(&self, id: NodeId) -> anyhow::Result<String> {
        let path = self.node(id)?.log_file();
        let mut file = std::fs::File::open(&path).with_context(|| path.display().to_string())?;
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
        let mut tail = Vec::new();
        file.read_to_end(&mut tail)?;
        Ok(String::from_utf8_lossy(&tail).into_owned())
    }

    /// Kills whatever still lives, without waiting for a runtime: for the end of a test.
    pub fn kill_now(&mut self) {
        for id in self.ids() {
            // At the end of a test that may have failed already there is nobody left to tell of an error.
            if let Ok(Some(pid)) = self.pid(id) {
                process::send_signal(pid, Signal::SIGKILL).ok();
            }
            if let Some(mut child) = self.children.remove(&id) {
                child.kill().ok();
                child.wait().ok();
            }
        }
    }
}

async fn ask(http: &str, credentials: &Credentials, path: &str) -> std::io::Result<http_client::Response> {
    let asked = http_client::request_as(http, credentials, "GET", path, "");
    tokio::time::timeout(ANSWER_TIMEOUT, asked)
        .await
        .map_err(|_| std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer"))?
}
