//! Processes under test: starts, watches, kills and stops nodes, and queries the leader. The time of each
//! action is decided elsewhere.
//! Several faults may be active at a time. A fault that ends or stops a node's process claims its slot until
//! the node is well again, so that no two faults do that to the same node.

pub mod alarms;
pub mod disks;
pub mod lockgate;
pub mod members;
pub mod node_process;
pub mod software;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use parking_lot::Mutex;

use crate::network::{Network, Slot};
use crate::world::Endpoint;
use node_process::NodeProcess;
use software::{Node, Software};

/// Time limit within which nodes start, elect and serve, even on a busy machine.
pub const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Time for which a restarted node is awaited before the next fault.
const RESTART_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval between two queries of nodes.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Interval between two checks that the processes still run.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// Misbehaviour of a node, whatever fault was injected: not a failure of the harness.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Misbehaved(pub String);

/// Returns the last line of a text, which is a program's reason when it exits.
pub fn last_line(text: &str) -> &str {
    text.lines().last().unwrap_or_default()
}

/// Nodes of a run.
pub struct Cluster {
    /// System under test.
    pub software: Arc<dyn Software>,
    /// Network that connects the nodes.
    pub network: Network,
    /// Number of nodes at the beginning; further slots have a node only while one is added.
    pub size: usize,
    /// Directory of this run's files.
    pub dir: PathBuf,
    /// Disks of individual nodes, if they have any.
    pub disks: disks::Disks,
    processes: Vec<NodeProcess>,
    /// Misbehaviour of nodes so far: they ended by themselves.
    incidents: Mutex<Vec<String>>,
}

impl Cluster {
    /// Configures the nodes; none is started. `peer_as_seen` returns the address at which other nodes reach a
    /// node's peer port.
    pub fn configure(
        software: Arc<dyn Software>,
        network: Network,
        size: usize,
        dir: PathBuf,
        peer_as_seen: &dyn Fn(Slot) -> std::net::SocketAddr,
    ) -> anyhow::Result<Self> {
        let processes = network.slots().map(|slot| {
            NodeProcess::new(Node {
                slot,
                id: slot as u64,
                dir: dir.join(format!("node-{slot}")),
                addresses: network.addresses(slot),
                peer_as_seen: peer_as_seen(slot),
            })
        });
        let processes = processes.collect();
        let cluster = Self {
            software,
            size,
            dir,
            processes,
            network,
            disks: disks::Disks::default(),
            incidents: Mutex::default(),
        };
        let all: Vec<Node> = (1..=size).map(|slot| cluster.node(slot)).collect();
        for node in &all {
            std::fs::create_dir_all(&node.dir).with_context(|| node.dir.display().to_string())?;
            cluster.software.configure(node, &all, false)?;
            cluster.process(node.slot).set_member(true);
        }
        Ok(cluster)
    }

    /// Returns the process slot with its node's state.
    pub fn process(&self, slot: Slot) -> &NodeProcess {
        &self.processes[slot - 1]
    }

    /// Returns the node in this slot.
    pub fn node(&self, slot: Slot) -> Node {
        self.process(slot).node()
    }

    /// Returns the slots whose nodes are members now.
    pub fn members(&self) -> Vec<Slot> {
        let slots = self.network.slots();
        slots.filter(|slot| self.process(*slot).is_member()).collect()
    }

    /// Returns the addresses of the nodes for clients.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        let nodes = (1..=self.size).map(|slot| self.node(slot));
        nodes
            .map(|node| Endpoint {
                node: node.id,
                http: node.addresses.http,
                zookeeper: node.addresses.zookeeper,
                redis: node.addresses.redis,
            })
            .collect()
    }

    /// Starts the process of a node without waiting until it serves.
    pub fn start(&self, slot: Slot) -> anyhow::Result<()> {
        self.process(slot).start(&*self.software, &self.network, false)
    }

    /// Starts a node that may refuse to serve and exit.
    pub fn start_damaged(&self, slot: Slot) -> anyhow::Result<()> {
        self.process(slot).start(&*self.software, &self.network, true)
    }

    /// Kills a node's process, as the kernel does when memory is short, and waits until it has ended.
    pub async fn kill(&self, slot: Slot) -> anyhow::Result<()> {
        self.process(slot).end(Signal::SIGKILL).await
    }

    /// Shuts a node down gracefully.
    pub async fn stop(&self, slot: Slot) -> anyhow::Result<()> {
        self.process(slot).end(Signal::SIGTERM).await
    }

    /// Sends a signal to a node's process.
    pub fn signal(&self, slot: Slot, signal: Signal) -> anyhow::Result<()> {
        let pid = self
            .pid(slot)
            .with_context(|| format!("the node in slot {slot} does not run"))?;
        nix::sys::signal::kill(pid, signal).with_context(|| format!("{signal} to the node in slot {slot}"))
    }

    /// Returns the process id of a running node.
    pub fn pid(&self, slot: Slot) -> Option<Pid> {
        self.process(slot).pid()
    }

    /// Waits until a node serves. A node that exits instead, or does not start to serve in time, is
    /// [`Misbehaved`].
    pub async fn wait_ready(&self, slot: Slot, timeout: Duration) -> anyhow::Result<()> {
        let begun = Instant::now();
        let node = self.node(slot);
        while !self.software.is_ready(&node).await {
            let what = match self.pid(slot) {
                None => "ended before it served".to_owned(),
                Some(_) if begun.elapsed() >= timeout => {
                    format!("does not serve after {} s", timeout.as_secs())
                }
                Some(_) => {
                    tokio::time::sleep(POLL_INTERVAL).await;
                    continue;
                }
            };
            let log = self.process(slot).log_tail();
            return Err(Misbehaved(format!(
                "node {} {what}; the last line of its log: {}",
                node.id,
                last_line(&log)
            ))
            .into());
        }
        Ok(())
    }

    /// Waits for a while until a restarted node serves. While other faults are active it need not serve; it
    /// must once all are healed.
    pub async fn wait_restarted(&self, slot: Slot) -> anyhow::Result<()> {
        match self.wait_ready(slot, RESTART_TIMEOUT).await {
            Err(error) if self.pid(slot).is_none() => Err(error),
            Err(_) => {
                eprintln!("the node in slot {slot} does not serve yet");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Waits until all members serve.
    pub async fn wait_all_ready(&self, timeout: Duration) -> anyhow::Result<()> {
        let begun = Instant::now();
        for slot in self.members() {
            self.wait_ready(slot, timeout.saturating_sub(begun.elapsed()))
                .await?;
        }
        Ok(())
    }

    /// Starts every member that does not run; returns their slots.
    pub fn start_missing(&self) -> anyhow::Result<Vec<Slot>> {
        let mut started = Vec::new();
        for slot in self.members() {
            if self.pid(slot).is_none() {
                self.start(slot)?;
                started.push(slot);
            }
        }
        Ok(started)
    }

    /// Returns the slot of the leader that the nodes know: if they name several, that of the latest term.
    pub async fn leader(&self) -> Option<Slot> {
        let nodes: Vec<Node> = self.members().into_iter().map(|slot| self.node(slot)).collect();
        let queries = nodes.iter().map(|node| self.software.leader(node));
        let known = futures_util::future::join_all(queries).await;
        let (leader, _) = known.into_iter().flatten().max_by_key(|(_, term)| *term)?;
        nodes.iter().find(|node| node.id == leader).map(|node| node.slot)
    }

    /// Returns the leader's slot as soon as there is a leader.
    pub async fn wait_leader(&self, timeout: Duration) -> anyhow::Result<Slot> {
        let begun = Instant::now();
        loop {
            if let Some(leader) = self.leader().await {
                return Ok(leader);
            }
            ensure!(
                begun.elapsed() < timeout,
                "no leader after {} s",
                timeout.as_secs()
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Records nodes that end by themselves, for as long as this future is polled.
    pub async fn watch(&self) {
        loop {
            for process in &self.processes {
                if let Some(incident) = process.ended_by_itself() {
                    eprintln!("{incident}");
                    self.incidents.lock().push(incident);
                }
            }
            tokio::time::sleep(WATCH_INTERVAL).await;
        }
    }

    /// Returns all misbehaviour of nodes so far.
    pub fn incidents(&self) -> Vec<String> {
        let mut incidents = self.incidents.lock().clone();
        incidents.extend(self.processes.iter().filter_map(NodeProcess::ended_by_itself));
        // Includes nodes that are no longer members.
        incidents.extend(node_process::panics(&self.dir));
        incidents
    }

    /// Waits until all members have the same state; returns a description of it. Fails with the different
    /// states.
    pub async fn wait_same_state(&self, timeout: Duration) -> anyhow::Result<Option<String>> {
        let begun = Instant::now();
        loop {
            let (mut seen, mut silent) = (Vec::new(), None);
            for slot in self.members() {
                match self.software.digest(&self.node(slot)).await {
                    Ok(Some(found)) => seen.push((slot, found)),
                    Ok(None) => return Ok(None),
                    Err(error) => silent = Some(error),
                }
            }
            if silent.is_none()
                && let Some((_, (position, digest))) = seen.first()
                && seen.iter().all(|(_, found)| found.0 == *position)
            {
                ensure!(
                    seen.iter().all(|(_, found)| found.1 == *digest),
                    "different states at the same position: {seen:?}"
                );
                return Ok(Some(format!(
                    "digest {digest} at position {position:#x} everywhere"
                )));
            }
            if begun.elapsed() >= timeout {
                return match silent {
                    Some(error) => Err(error),
                    None => bail!("the nodes do not reach the same position: {seen:?}"),
                };
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}
