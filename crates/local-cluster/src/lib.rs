//! Launcher for a cluster of node processes on this machine: configures, starts, observes, stops and kills
//! them.
//!
//! The nodes are processes of a given executable: `lockgate`, or another program that runs a node when it is
//! called with `serve --config FILE`. They are detached from the process that starts them. The cluster's
//! directory contains all state of the cluster (see [`layout`]); the launcher itself leaves no process
//! running.
//!
//! This crate calls nodes over HTTP and writes their configurations. It must know neither the server library
//! that runs in a node nor the commands that use it.

mod certificates;
pub mod layout;
mod learners;
pub mod location;
pub mod members;
mod mixed_directories;
pub mod ports;
pub mod process;
pub mod secured;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use lock_client::Token;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use raft_node::{Alarm, ClusterStatus, NodeId, Role, SnapshotMade};
use serde::Serialize;
use tokio::time::Instant;
use transport_security::ClientTls;

pub use certificates::CLIENT_SUBJECT;
use cli_support::credentials::Credentials;
use cli_support::http_client;
pub use layout::{
    HTTP_BASE_PORT, LocalNode, MAX_NODES, PEER_BASE_PORT, Ports, REDIS_BASE_PORT, ZOOKEEPER_BASE_PORT,
};
pub use mixed_directories::mixed_directories;

/// Poll interval while waiting for nodes. Nodes cannot notify the launcher, as there is no connection between
/// them.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Response timeout of status requests. A live node responds at once; a slower one is of no use at the
/// moment.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Interval, while waiting for nodes, of the check that all of them belong to one cluster.
const CLUSTER_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Time in which any number of nodes start, elect and serve, even on a busy machine.
pub const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Time in which a killed process has closed its sockets after it released its pid file, even on a busy
/// machine.
const SOCKET_CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time from SIGTERM to SIGKILL. A node drains for at most its own `http.drain_timeout_ms`.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(15);

/// Number of bytes at the end of a node's log output that are shown if the node does not start.
const LOG_TAIL_BYTES: u64 = 2048;

/// Result of a status request.
#[derive(Debug)]
enum NodeState {
    /// The node serves.
    Ready,
    /// The node's process is alive but does not serve yet, for this reason.
    Starting(String),
    /// The node has no process. The exit status is known if this program had started the process.
    Gone(Option<ExitStatus>),
}

/// Cluster of node processes on this machine.
#[derive(Debug)]
pub struct LocalCluster {
    nodes: BTreeMap<NodeId, LocalNode>,
    executable: PathBuf,
    /// Processes that this program has started and has to reap.
    children: BTreeMap<NodeId, Child>,
    /// Credentials for calls to the nodes.
    credentials: Credentials,
}

/// Node as `lockgate dev status` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeReport {
    /// Node id.
    pub id: NodeId,
    /// Process id, if the process is alive.
    pub pid: Option<i32>,
    /// Role in the cluster, if the node responds.
    pub role: Option<Role>,
    /// Id of the cluster that the data directory belongs to, if the node responds and has one.
    pub cluster_id: Option<String>,
    /// True if the node can serve.
    pub ready: bool,
    /// Alarms of the whole cluster that the node reports.
    pub alarms: Vec<Alarm>,
    /// HTTP URL.
    pub url: String,
    /// Peer address.
    pub peer: String,
    /// Directory of the log, the vote and the snapshots.
    pub data_dir: PathBuf,
    /// File of the log output.
    pub log: PathBuf,
}

impl LocalCluster {
    /// Opens the cluster in `dir`, whose nodes are processes of `executable`. Fails if there is none.
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

    /// Opens a cluster like [`LocalCluster::open`], for programs that support neither TLS nor tokens. Fails
    /// if the cluster requires them.
    pub fn open_plain(dir: &Path, executable: &Path) -> anyhow::Result<Self> {
        let cluster = Self::open(dir, executable)?;
        ensure!(
            !cluster.is_secured(),
            "the cluster in {} uses TLS, which this command does not support",
            dir.display()
        );
        ensure!(
            cluster.credentials.token.is_none(),
            "the cluster in {} requires authentication, which this command does not support",
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
            "there is already a cluster in {}",
            dir.display()
        );
        Ok(Self::of(
            layout::create(dir, count, ports, settings)?,
            executable,
            Credentials::default(),
        ))
    }

    /// Lets the nodes of a new cluster, none of which runs, serve Redis clients: node N at port `base` + N, or without a base at a free port.
    pub fn serve_redis(&mut self, base: Option<u16>) -> anyhow::Result<()> {
        layout::serve_redis(&mut self.nodes, base)
    }

    /// Configures a new cluster with TLS on all connections: creates an authority, and certificates of the
    /// nodes and of a client.
    pub fn create_secured(
        dir: &Path,
        executable: &Path,
        count: u64,
        ports: Ports,
        settings: &str,
    ) -> anyhow::Result<Self> {
        let settings = format!("{settings}{}", certificates::SETTINGS);
        let mut cluster = Self::create(dir, executable, count, ports, &settings)?;
        certificates::create(dir)?;
        for node in cluster.nodes() {
            certificates::create_for(node)?;
        }
        cluster.credentials.tls = certificates::client(dir)?;
        Ok(cluster)
    }

    /// Returns whether the nodes use TLS.
    pub fn is_secured(&self) -> bool {
        self.credentials.tls.is_some()
    }

    /// Returns the TLS configuration for calls to the nodes; `None` without TLS.
    pub fn tls(&self) -> Option<&ClientTls> {
        self.credentials.tls.as_ref()
    }

    /// Returns the TLS configuration for calls without a client certificate; `None` without TLS.
    pub fn tls_without_certificate(&self) -> anyhow::Result<Option<ClientTls>> {
        match self.nodes().next().and_then(|node| node.dir.parent()) {
            Some(dir) => certificates::client_without_certificate(dir),
            None => Ok(None),
        }
    }

    /// Returns the credentials for calls to the nodes: of the administrator, if the cluster is secured.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Returns the URL of a node's HTTP address.
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

    /// Sets the token for further calls to the nodes.
    fn set_token(&mut self, token: Token) {
        self.credentials.token = Some(token);
    }

    /// Returns the nodes, sorted by id.
    pub fn nodes(&self) -> impl Iterator<Item = &LocalNode> {
        self.nodes.values()
    }

    /// Returns the node with this id.
    pub fn node(&self, id: NodeId) -> anyhow::Result<&LocalNode> {
        self.nodes
            .get(&id)
            .with_context(|| format!("there is no node {id}"))
    }

    /// Returns all node ids.
    pub fn ids(&self) -> Vec<NodeId> {
        self.nodes.keys().copied().collect()
    }

    /// Returns the HTTP addresses of all nodes, sorted by id: `host:port`.
    pub fn http_addresses(&self) -> Vec<String> {
        self.nodes.values().map(|node| node.http.clone()).collect()
    }

    /// Returns the HTTP addresses of the nodes with a live process: `host:port`.
    pub fn live_http_addresses(&self) -> anyhow::Result<Vec<String>> {
        let mut live = Vec::new();
        for node in self.nodes() {
            if self.pid(node.id)?.is_some() {
                live.push(node.http.clone());
            }
        }
        ensure!(
            !live.is_empty(),
            "no node is running: start the cluster with `lockgate dev up`"
        );
        Ok(live)
    }

    /// Returns the process id of a node, if the process is alive. A process that this program has started is alive until it has ended, although it
    /// claims its pid file only a moment after its start, and releases it a moment before its end.
    pub fn pid(&self, id: NodeId) -> anyhow::Result<Option<Pid>> {
        let node = self.node(id)?;
        if let Some(child) = self.children.get(&id) {
            let child = Pid::from_raw(child.id().cast_signed());
            if process::child_lives(child).with_context(|| format!("the process of node {id}"))? {
                return Ok(Some(child));
            }
        }
        let file = node.pid_file();
        process::claimant(&file).with_context(|| file.display().to_string())
    }

    /// Starts the nodes that have no live process and waits until all nodes serve. Returns the ids of the
    /// started nodes. Fails if the data directories belong to several clusters.
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
        // Poll all nodes in turn: a node that serves only when the others do must not block the loop.
        while !awaited.is_empty() {
            for id in std::mem::take(&mut awaited) {
                match self.state_of(id).await? {
                    NodeState::Ready => continue,
                    NodeState::Gone(status) if started.contains(&id) => bail!(self.ended(id, status)?),
                    // The process was alive a moment ago and has ended since, for example after SIGKILL.
                    NodeState::Gone(_) => {
                        self.wait_addresses_free(id).await?;
                        self.start(id)?;
                        started.push(id);
                    }
                    NodeState::Starting(reason) => self.ensure_time_left(id, &reason, deadline, timeout)?,
                }
                awaited.push(id);
            }
            if awaited.is_empty() || checked.elapsed() >= CLUSTER_CHECK_INTERVAL {
                self.ensure_one_cluster().await?;
                checked = Instant::now();
            }
            if !awaited.is_empty() {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
        started.sort_unstable();
        Ok(started)
    }

    async fn ensure_one_cluster(&self) -> anyhow::Result<()> {
        match mixed_directories(&self.status().await?) {
            Some(problem) => bail!(problem),
            None => Ok(()),
        }
    }

    /// Waits for a limited time until no process listens at a node's addresses. A process that ends releases
    /// its pid file and its sockets one after the other.
    async fn wait_addresses_free(&self, id: NodeId) -> anyhow::Result<()> {
        let node = self.node(id)?;
        let deadline = Instant::now() + SOCKET_CLOSE_TIMEOUT;
        while node
            .addresses()
            .any(|address| ports::check_free(id, address).is_err())
            && Instant::now() < deadline
        {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Starts the process of a node, detached; does not wait until it serves. Fails if the node has a process.
    pub fn start(&mut self, id: NodeId) -> anyhow::Result<()> {
        self.start_with(id, &[])
    }

    /// Starts the process of a node with additional environment variables.
    pub fn start_with(&mut self, id: NodeId, environment: &[(&str, &str)]) -> anyhow::Result<()> {
        if let Some(pid) = self.pid(id)? {
            bail!("node {id} is already running as process {pid}");
        }
        self.reap(id)?;
        let node = self.node(id)?;
        // A node of another cluster at this address would look like this node.
        for address in node.addresses() {
            ports::check_free(id, address)?;
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
            // A process group of its own, so that Ctrl-C in the terminal does not reach the nodes.
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
                match self.state_of(id).await? {
                    NodeState::Ready => break,
                    NodeState::Gone(status) => bail!(self.ended(id, status)?),
                    NodeState::Starting(reason) => self.ensure_time_left(id, &reason, deadline, timeout)?,
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
        Ok(())
    }

    /// Queries whether a node serves.
    async fn state_of(&mut self, id: NodeId) -> anyhow::Result<NodeState> {
        let http = self.node(id)?.http.clone();
        let response = get(&http, self.credentials(), "/readyz").await;
        let reason = match response {
            Ok(response) if response.status == 200 => return Ok(NodeState::Ready),
            Ok(response) => String::from_utf8_lossy(&response.body).into_owned(),
            Err(error) => error.to_string(),
        };
        Ok(match self.pid(id)? {
            Some(_) => NodeState::Starting(reason),
            None => NodeState::Gone(self.reap(id)?),
        })
    }

    /// Describes the end of a node's process, with the end of its log.
    fn ended(&self, id: NodeId, status: Option<ExitStatus>) -> anyhow::Result<String> {
        let status = status.map_or_else(String::new, |status| format!(" ({status})"));
        Ok(format!(
            "node {id} ended{status}; its log ends:\n{}",
            self.log_tail(id)?
        ))
    }

    /// Fails if the deadline for a node to serve has passed.
    fn ensure_time_left(
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

    /// Waits until a node responds to HTTP requests at all, even if it cannot serve.
    pub async fn wait_listening(&mut self, id: NodeId, timeout: Duration) -> anyhow::Result<()> {
        let http = self.node(id)?.http.clone();
        let deadline = Instant::now() + timeout;
        while get(&http, self.credentials(), "/healthz").await.is_err() {
            if self.pid(id)?.is_none() {
                let status = self.reap(id)?;
                bail!(self.ended(id, status)?);
            }
            ensure!(
                Instant::now() < deadline,
                "node {id} does not answer after {} s; its log ends:\n{}",
                timeout.as_secs(),
                self.log_tail(id)?
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Configures one more node with the settings of the others and the next ports. The new node waits until
    /// it is added.
    pub fn configure_new(&mut self, id: NodeId) -> anyhow::Result<LocalNode> {
        let nodes: Vec<LocalNode> = self.nodes.values().cloned().collect();
        let node = layout::add(&nodes, id)?;
        if self.is_secured() {
            certificates::create_for(&node)?;
        }
        self.nodes.insert(id, node.clone());
        Ok(node)
    }

    /// Stops a node that was removed from the cluster, renames its directory, and returns the new path.
    pub async fn put_aside(&mut self, id: NodeId, grace: Duration) -> anyhow::Result<PathBuf> {
        self.stop(id, grace).await?;
        self.reap(id)?;
        let aside = layout::put_aside(self.node(id)?)?;
        self.nodes.remove(&id);
        Ok(aside)
    }

    /// Returns the cluster status as a node sees it; `None` if the node does not respond.
    pub async fn view_of(&self, id: NodeId) -> anyhow::Result<Option<ClusterStatus>> {
        let http = &self.node(id)?.http;
        match get(http, self.credentials(), "/v1/cluster").await {
            Ok(response) if response.status == 200 => serde_json::from_slice(&response.body)
                .map(Some)
                .with_context(|| format!("node {id} responded {}", String::from_utf8_lossy(&response.body))),
            _ => Ok(None),
        }
    }

    /// Requests a snapshot of a node and waits for it without a timeout.
    pub async fn snapshot(&self, id: NodeId) -> anyhow::Result<SnapshotMade> {
        let http = &self.node(id)?.http;
        let response = http_client::request_as(http, self.credentials(), "POST", "/v1/cluster/snapshot", "")
            .await
            .with_context(|| format!("node {id} does not respond"))?;
        let text = String::from_utf8_lossy(&response.body);
        ensure!(
            response.status == 200,
            "node {id} cannot write a snapshot: {text}"
        );
        serde_json::from_slice(&response.body).with_context(|| format!("node {id} responded {text}"))
    }

    /// Waits for a node that considers itself the leader and returns its id.
    pub async fn leader(&self, timeout: Duration) -> anyhow::Result<NodeId> {
        let deadline = Instant::now() + timeout;
        loop {
            // A deposed leader may still consider itself the leader; the higher term is right.
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
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns a report of every node.
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

    /// Kills a node's process with SIGKILL and waits for its end. Returns whether there was one.
    pub async fn kill(&mut self, id: NodeId) -> anyhow::Result<bool> {
        let Some(pid) = self.pid(id)? else {
            return Ok(false);
        };
        process::send_signal(pid, Signal::SIGKILL).with_context(|| format!("killing node {id}"))?;
        self.wait_ended(id).await?;
        Ok(true)
    }

    /// Kills all nodes at the same moment.
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

    /// Sends SIGTERM to a node and waits for its end; kills it after `grace`. Returns whether it ended by
    /// itself.
    pub async fn stop(&mut self, id: NodeId, grace: Duration) -> anyhow::Result<bool> {
        let Some(pid) = self.pid(id)? else { return Ok(true) };
        process::send_signal(pid, Signal::SIGTERM).with_context(|| format!("stopping node {id}"))?;
        let file = self.node(id)?.pid_file();
        let gone = process::wait_unclaimed(&file, grace)
            .await
            .with_context(|| file.display().to_string())?;
        if gone {
            self.reap(id)?;
        } else {
            self.kill(id).await?;
        }
        Ok(gone)
    }

    /// Sends a signal to a node's process, such as SIGSTOP.
    pub fn signal(&self, id: NodeId, signal: Signal) -> anyhow::Result<()> {
        let pid = self
            .pid(id)?
            .with_context(|| format!("node {id} is not running"))?;
        process::send_signal(pid, signal).with_context(|| format!("{signal} to node {id}"))
    }

    async fn wait_ended(&mut self, id: NodeId) -> anyhow::Result<()> {
        let file = self.node(id)?.pid_file();
        let gone = process::wait_unclaimed(&file, STOP_TIMEOUT).await?;
        ensure!(gone, "the process of node {id} does not end");
        self.reap(id)?;
        Ok(())
    }

    /// Waits for the end of the process of a node if this program has started it, so that it does not stay as a zombie. Returns its exit status.
    fn reap(&mut self, id: NodeId) -> anyhow::Result<Option<ExitStatus>> {
        let Some(mut child) = self.children.remove(&id) else {
            return Ok(None);
        };
        child
            .wait()
            .map(Some)
            .with_context(|| format!("waiting for the end of the process of node {id}"))
    }

    /// Returns the end of a node's log output.
    pub fn log_tail(&self, id: NodeId) -> anyhow::Result<String> {
        let path = self.node(id)?.log_file();
        let mut file = std::fs::File::open(&path).with_context(|| path.display().to_string())?;
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
        let mut tail = Vec::new();
        file.read_to_end(&mut tail)?;
        Ok(String::from_utf8_lossy(&tail).into_owned())
    }

    /// Kills all live nodes without a runtime, for the end of a test.
    pub fn kill_now(&mut self) {
        for id in self.ids() {
            // Errors are ignored: at the end of a test, which may have failed already, nobody could handle
            // them.
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

async fn get(http: &str, credentials: &Credentials, path: &str) -> std::io::Result<http_client::Response> {
    let request = http_client::request_as(http, credentials, "GET", path, "");
    tokio::time::timeout(ANSWER_TIMEOUT, request)
        .await
        .map_err(|_| std::io::Error::new(std::io::ErrorKind::TimedOut, "no response"))?
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// The claim of the pid file does not cover the first and the last moment of a process. A node that is
    /// taken for ended then would be started twice, or not at all.
    #[tokio::test]
    async fn started_process_counts_without_its_claim() {
        let dir = tempfile::tempdir().unwrap();
        // A node that never claims its pid file.
        let executable = dir.path().join("node");
        std::fs::write(&executable, "#!/bin/sh\nexec sleep 10\n").unwrap();
        std::fs::set_permissions(&executable, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut cluster =
            LocalCluster::create(&dir.path().join("cluster"), &executable, 1, Ports::Free, "").unwrap();
        assert_eq!(cluster.pid(1).unwrap(), None);
        assert!(!cluster.kill(1).await.unwrap(), "there is no process");

        for _ in 0..2 {
            cluster.start(1).unwrap();
            let pid = cluster.pid(1).unwrap().expect("the process lives");
            let error = cluster.start(1).unwrap_err().to_string();
            assert_eq!(error, format!("node 1 is already running as process {pid}"));
            assert!(cluster.kill(1).await.unwrap());
            assert_eq!(cluster.pid(1).unwrap(), None);
        }
    }
}
