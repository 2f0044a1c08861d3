//! Slot of a node, with the process that runs in it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::Mutex;
use tokio::process::Child;
use tokio::sync::OwnedMutexGuard;

use super::software::{Node, Software};
use crate::network::Network;

/// Time limit of a process to end. After SIGTERM a node drains and hands its leadership over; after SIGKILL
/// it ends at once unless its disk hangs.
const END_TIMEOUT: Duration = Duration::from_secs(20);

/// Number of bytes shown from the end of a log.
const TAIL_BYTES: u64 = 3000;

/// Text that a Rust program prints when it panics.
const PANIC: &str = "panicked at";

/// Thread of Lockgate that may panic: the index of lock history is isolated, and nothing depends on it.
const CONTAINED: &str = "thread 'lock-history'";

/// Slot with its node and the node's process.
pub struct NodeProcess {
    state: Mutex<State>,
    claim: Arc<tokio::sync::Mutex<()>>,
}

struct State {
    node: Node,
    is_member: bool,
    child: Option<Child>,
    /// The end of the process is expected because of a fault, and is no incident.
    may_end: bool,
    /// Exit status of the last process that ended by itself.
    ended: Option<String>,
    /// Additional environment variables for the next start.
    environment: Vec<(String, String)>,
}

/// Exclusive right to end or stop the node's process, until it is dropped.
pub type Claim = OwnedMutexGuard<()>;

impl NodeProcess {
    /// Creates a slot for a node whose process is not started.
    pub fn new(node: Node) -> Self {
        Self {
            state: Mutex::new(State {
                node,
                is_member: false,
                child: None,
                may_end: false,
                ended: None,
                environment: Vec::new(),
            }),
            claim: Arc::default(),
        }
    }

    /// Returns the node in this slot.
    pub fn node(&self) -> Node {
        self.state.lock().node.clone()
    }

    /// Puts another node into this slot.
    pub fn set_node(&self, node: Node) {
        self.state.lock().node = node;
    }

    /// Returns whether the node is a member of the cluster.
    pub fn is_member(&self) -> bool {
        self.state.lock().is_member
    }

    /// Sets whether the node is a member of the cluster.
    pub fn set_member(&self, is: bool) {
        self.state.lock().is_member = is;
    }

    /// Sets whether the process may end by itself.
    pub fn set_may_end(&self, may: bool) {
        self.state.lock().may_end = may;
    }

    /// Sets additional environment variables for the next starts.
    pub fn set_environment(&self, environment: Vec<(String, String)>) {
        self.state.lock().environment = environment;
    }

    /// Claims the process for a fault that ends or stops it; waits while another fault has the claim.
    pub async fn claim(&self) -> Claim {
        self.claim.clone().lock_owned().await
    }

    /// Starts the process; `may_end` says whether it may end by itself.
    pub fn start(&self, software: &dyn Software, network: &Network, may_end: bool) -> anyhow::Result<()> {
        let mut state = self.state.lock();
        if state.child.is_some() {
            bail!("node {} runs already", state.node.id);
        }
        let start = software.start(&state.node);
        let path = state.node.log_file();
        let log = OpenOptions::new().create(true).append(true).open(&path);
        let log = log.with_context(|| path.display().to_string())?;
        let child = network
            .command(state.node.slot, &start.program)
            .args(&start.arguments)
            .envs(start.environment)
            .envs(state.environment.iter().cloned())
            .current_dir(&state.node.dir)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("a second handle of the log")?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| start.program.display().to_string())?;
        state.child = Some(child);
        state.may_end = may_end;
        state.ended = None;
        Ok(())
    }

    /// Returns the process id while the process runs.
    pub fn pid(&self) -> Option<Pid> {
        let mut state = self.state.lock();
        reap(&mut state);
        let id = state.child.as_ref()?.id()?;
        Some(Pid::from_raw(i32::try_from(id).expect("process ids are small")))
    }

    /// Ends the process with this signal and waits until it has ended. Does nothing if it has ended already.
    pub async fn end(&self, signal: Signal) -> anyhow::Result<()> {
        self.set_may_end(true);
        let Some(pid) = self.pid() else { return Ok(()) };
        match kill(pid, signal) {
            Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
            Err(error) => return Err(error).context(format!("{signal} to process {pid}")),
        }
        if signal == Signal::SIGTERM {
            // A stopped process would not handle the signal.
            let _already_gone = kill(pid, Signal::SIGCONT);
        }
        self.wait_ended(END_TIMEOUT).await
    }

    /// Waits until the process has ended.
    pub async fn wait_ended(&self, timeout: Duration) -> anyhow::Result<()> {
        let child = self.state.lock().child.take();
        let Some(mut child) = child else { return Ok(()) };
        let ended = tokio::time::timeout(timeout, child.wait()).await;
        let mut state = self.state.lock();
        match ended {
            Ok(status) => {
                status.context("waiting for a node's process")?;
                Ok(())
            }
            Err(_) => {
                let id = state.node.id;
                state.child = Some(child);
                bail!("node {id} did not end within {} s", timeout.as_secs())
            }
        }
    }

    /// Returns an incident if the process has ended unexpectedly. Each end is reported once.
    pub fn ended_by_itself(&self) -> Option<String> {
        let mut state = self.state.lock();
        reap(&mut state);
        let ended = state.ended.take()?;
        match state.may_end {
            true => None,
            false => Some(format!("node {} ended by itself ({ended})", state.node.id)),
        }
    }

    /// Returns the end of the node's log.
    pub fn log_tail(&self) -> String {
        let path = self.node().log_file();
        let tail = || -> std::io::Result<String> {
            let mut file = File::open(&path)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        tail().unwrap_or_else(|error| format!("{}: {error}", path.display()))
    }
}

/// Returns the lines that report panics in the logs of all nodes below this directory.
pub fn panics(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return vec![format!("{} cannot be read", dir.display())];
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Ok(bytes) = std::fs::read(entry.path().join("log")) {
            let text = String::from_utf8_lossy(&bytes);
            let lines = text
                .lines()
                .filter(|line| line.contains(PANIC) && !line.contains(CONTAINED));
            found.extend(lines.map(|line| format!("{name}: {line}")));
        }
    }
    found
}

/// Records the process's end if it has ended.
fn reap(state: &mut State) {
    let Some(child) = &mut state.child else { return };
    let ended = match child.try_wait() {
        Ok(None) => return,
        Ok(Some(status)) => match status.signal() {
            Some(signal) => format!("signal {signal}"),
            None => status.to_string(),
        },
        Err(error) => error.to_string(),
    };
    state.child = None;
    state.ended = Some(ended);
}
