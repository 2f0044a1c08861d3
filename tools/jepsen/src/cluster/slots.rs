//! A place and the process in it.

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

/// After SIGTERM a node drains and hands over; after SIGKILL it is gone unless its disk hangs.
const END_PATIENCE: Duration = Duration::from_secs(20);

/// So much of the end of a log is shown.
const TAIL_BYTES: u64 = 3000;

/// What a program of Rust prints when it panics.
const PANIC: &str = "panicked at";

/// The thread of Lockgate that may: its index of lock history is contained, and nothing depends on it.
const CONTAINED: &str = "thread 'lock-history'";

/// A place, the node that is there, and its process.
pub struct Place {
    state: Mutex<State>,
    claim: Arc<tokio::sync::Mutex<()>>,
}

struct State {
    node: Node,
    is_member: bool,
    child: Option<Child>,
    /// A fault has it end: that it does is no incident.
    may_end: bool,
    /// How it ended, the last time that it did so by itself.
    ended: Option<String>,
    /// More variables for its next start.
    environment: Vec<(String, String)>,
}

/// Nobody else ends or stops the node's process while this lives.
pub type Claim = OwnedMutexGuard<()>;

impl Place {
    /// A place for a node whose process is not started.
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

    /// Who is here.
    pub fn node(&self) -> Node {
        self.state.lock().node.clone()
    }

    /// Another node takes the place.
    pub fn set_node(&self, node: Node) {
        self.state.lock().node = node;
    }

    /// Whether the node here belongs to the cluster.
    pub fn is_member(&self) -> bool {
        self.state.lock().is_member
    }

    /// It does from now on, or no longer.
    pub fn set_member(&self, is: bool) {
        self.state.lock().is_member = is;
    }

    /// Its process may end by itself from now on, or must not.
    pub fn set_may_end(&self, may: bool) {
        self.state.lock().may_end = may;
    }

    /// More variables of the environment for its next starts.
    pub fn set_environment(&self, environment: Vec<(String, String)>) {
        self.state.lock().environment = environment;
    }

    /// For whoever ends or stops the process; waits while somebody else does.
    pub async fn claim(&self) -> Claim {
        self.claim.clone().lock_owned().await
    }

    /// Starts the process, which may end by itself, or must not.
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

    /// The process, if it lives.
    pub fn pid(&self) -> Option<Pid> {
        let mut state = self.state.lock();
        reap(&mut state);
        let id = state.child.as_ref()?.id()?;
        Some(Pid::from_raw(i32::try_from(id).expect("process ids are small")))
    }

    /// Ends the process with this signal, and waits until it is gone. That it is gone already is fine.
    pub async fn end(&self, signal: Signal) -> anyhow::Result<()> {
        self.set_may_end(true);
        let Some(pid) = self.pid() else { return Ok(()) };
        match kill(pid, signal) {
            Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
            Err(error) => return Err(error).context(format!("{signal} to process {pid}")),
        }
        if signal == Signal::SIGTERM {
            // A process that stands still would not hear of it.
            let _already_gone = kill(pid, Signal::SIGCONT);
        }
        self.wait_ended(END_PATIENCE).await
    }

    /// Waits until the process is gone.
    pub async fn wait_ended(&self, patience: Duration) -> anyhow::Result<()> {
        let child = self.state.lock().child.take();
        let Some(mut child) = child else { return Ok(()) };
        let ended = tokio::time::timeout(patience, child.wait()).await;
        let mut state = self.state.lock();
        match ended {
            Ok(status) => {
                status.context("waiting for a node's process")?;
                Ok(())
            }
            Err(_) => {
                let id = state.node.id;
                state.child = Some(child);
                bail!("node {id} does not end within {} s", patience.as_secs())
            }
        }
    }

    /// What is to be said of a process that has ended though nobody had it end. Told once.
    pub fn ended_by_itself(&self) -> Option<String> {
        let mut state = self.state.lock();
        reap(&mut state);
        let ended = state.ended.take()?;
        match state.may_end {
            true => None,
            false => Some(format!("node {} ended by itself ({ended})", state.node.id)),
        }
    }

    /// The end of the node's log.
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

/// The lines that tell of panics, in the logs of all nodes whose directories are in this one.
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

/// Notes that the process has ended, if it has.
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
