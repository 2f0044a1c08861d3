//! The processes under test: started, watched, killed, stopped and asked who leads. Nothing here decides when.
//!
//! Several faults may be at work at a time. Who ends or stops a node's process claims its place until the node is well
//! again, so that no two of them do that to the same node.

pub mod alarms;
pub mod disks;
pub mod lockgate;
pub mod members;
pub mod slots;
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
use slots::Place;
use software::{Node, Software};

/// Nodes start, elect and serve within this even on a machine that is busy with something else.
pub const START_PATIENCE: Duration = Duration::from_secs(60);

/// So long a node that was started again is waited for before the next fault.
const BACK_PATIENCE: Duration = Duration::from_secs(10);

/// How often nodes are asked.
const ASK_EVERY: Duration = Duration::from_millis(25);

/// How often it is looked whether processes are still there.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A node did what it must not do, whatever was done to it: not a failure of the harness.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Misbehaved(pub String);

/// The last line of a text, which is what a program says when it ends.
pub fn last_line(text: &str) -> &str {
    text.lines().last().unwrap_or_default()
}

/// The nodes of a run.
pub struct Cluster {
    /// What they are.
    pub software: Arc<dyn Software>,
    /// What connects them.
    pub network: Network,
    /// How many there are at the beginning; places beyond have a node only while one is added.
    pub size: usize,
    /// Files of this run.
    pub dir: PathBuf,
    /// Disks of the nodes' own, if they have such.
    pub disks: disks::Disks,
    places: Vec<Place>,
    /// What nodes did that they must not do: they ended by themselves.
    incidents: Mutex<Vec<String>>,
}

impl Cluster {
    /// Configures the nodes; none is started. `peer_as_seen` says where others find a node's peer port.
    pub fn configure(
        software: Arc<dyn Software>,
        network: Network,
        size: usize,
        dir: PathBuf,
        peer_as_seen: &dyn Fn(Slot) -> std::net::SocketAddr,
    ) -> anyhow::Result<Self> {
        let places = network.slots().map(|slot| {
            Place::new(Node {
                slot,
                id: slot as u64,
                dir: dir.join(format!("node-{slot}")),
                addresses: network.addresses(slot),
                peer_as_seen: peer_as_seen(slot),
            })
        });
        let places = places.collect();
        let cluster = Self {
            software,
            size,
            dir,
            places,
            network,
            disks: disks::Disks::default(),
            incidents: Mutex::default(),
        };
        let all: Vec<Node> = (1..=size).map(|slot| cluster.node(slot)).collect();
        for node in &all {
            std::fs::create_dir_all(&node.dir).with_context(|| node.dir.display().to_string())?;
            cluster.software.configure(node, &all, false)?;
            cluster.place(node.slot).set_member(true);
        }
        Ok(cluster)
    }

    /// The place's state and process.
    pub fn place(&self, slot: Slot) -> &Place {
        &self.places[slot - 1]
    }

    /// The node at this place.
    pub fn node(&self, slot: Slot) -> Node {
        self.place(slot).node()
    }

    /// The places whose nodes belong to the cluster, now.
    pub fn members(&self) -> Vec<Slot> {
        let slots = self.network.slots();
        slots.filter(|slot| self.place(*slot).is_member()).collect()
    }

    /// Where clients find the nodes.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        let nodes = (1..=self.size).map(|slot| self.node(slot));
        nodes
            .map(|node| Endpoint {
                node: node.id,
                http: node.addresses.http,
                zookeeper: node.addresses.zookeeper,
            })
            .collect()
    }

    /// Starts the process of a node; does not wait for it to serve.
    pub fn start(&self, slot: Slot) -> anyhow::Result<()> {
        self.place(slot).start(&*self.software, &self.network, false)
    }

    /// Starts a node that may refuse to serve, and end.
    pub fn start_damaged(&self, slot: Slot) -> anyhow::Result<()> {
        self.place(slot).start(&*self.software, &self.network, true)
    }

    /// Ends a node's process, as the kernel does when memory is short, and waits until it is gone.
    pub async fn kill(&self, slot: Slot) -> anyhow::Result<()> {
        self.place(slot).end(Signal::SIGKILL).await
    }

    /// Has a node stop properly.
    pub async fn stop(&self, slot: Slot) -> anyhow::Result<()> {
        self.place(slot).end(Signal::SIGTERM).await
    }

    /// Sends a signal to a node's process.
    pub fn signal(&self, slot: Slot, signal: Signal) -> anyhow::Result<()> {
        let pid = self
            .pid(slot)
            .with_context(|| format!("node at place {slot} does not run"))?;
        nix::sys::signal::kill(pid, signal).with_context(|| format!("{signal} to node at place {slot}"))
    }

    /// A node's process.
    pub fn pid(&self, slot: Slot) -> Option<Pid> {
        self.place(slot).pid()
    }

    /// Waits until a node serves. That it ends instead, or does not come to serve, is its own fault: [`Misbehaved`].
    pub async fn wait_ready(&self, slot: Slot, patience: Duration) -> anyhow::Result<()> {
        let begun = Instant::now();
        let node = self.node(slot);
        while !self.software.is_ready(&node).await {
            let what = match self.pid(slot) {
                None => "ended before it served".to_owned(),
                Some(_) if begun.elapsed() >= patience => {
                    format!("does not serve after {} s", patience.as_secs())
                }
                Some(_) => {
                    tokio::time::sleep(ASK_EVERY).await;
                    continue;
                }
            };
            let log = self.place(slot).log_tail();
            return Err(Misbehaved(format!(
                "node {} {what}; the last line of its log: {}",
                node.id,
                last_line(&log)
            ))
            .into());
        }
        Ok(())
    }

    /// Waits for a while until a node that was started again serves. That it does not while other faults are at work is no
    /// failure; it has to when all are healed.
    pub async fn wait_back(&self, slot: Slot) -> anyhow::Result<()> {
        match self.wait_ready(slot, BACK_PATIENCE).await {
            Err(error) if self.pid(slot).is_none() => Err(error),
            Err(_) => {
                eprintln!("place {slot} does not serve yet");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Waits until all members serve.
    pub async fn wait_all_ready(&self, patience: Duration) -> anyhow::Result<()> {
        let begun = Instant::now();
        for slot in self.members() {
            self.wait_ready(slot, patience.saturating_sub(begun.elapsed()))
                .await?;
        }
        Ok(())
    }

    /// Starts every member that does not run, and says which.
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

    /// Where the leader is that the nodes know: of those of different terms, the latest.
    pub async fn leader(&self) -> Option<Slot> {
        let nodes: Vec<Node> = self.members().into_iter().map(|slot| self.node(slot)).collect();
        let asked = nodes.iter().map(|node| self.software.leader(node));
        let known = futures_util::future::join_all(asked).await;
        let (leader, _) = known.into_iter().flatten().max_by_key(|(_, term)| *term)?;
        nodes.iter().find(|node| node.id == leader).map(|node| node.slot)
    }

    /// The same, as soon as there is one.
    pub async fn wait_leader(&self, patience: Duration) -> anyhow::Result<Slot> {
        let begun = Instant::now();
        loop {
            if let Some(leader) = self.leader().await {
                return Ok(leader);
            }
            ensure!(
                begun.elapsed() < patience,
                "nobody leads after {} s",
                patience.as_secs()
            );
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    /// Notes nodes that end by themselves, for as long as this is polled.
    pub async fn watch(&self) {
        loop {
            for place in &self.places {
                if let Some(incident) = place.ended_by_itself() {
                    eprintln!("{incident}");
                    self.incidents.lock().push(incident);
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// What nodes did that they must not do.
    pub fn incidents(&self) -> Vec<String> {
        let mut incidents = self.incidents.lock().clone();
        incidents.extend(self.places.iter().filter_map(Place::ended_by_itself));
        // Also of nodes that are no members any more.
        incidents.extend(slots::panics(&self.dir));
        incidents
    }

    /// Waits until all members have the same state. Says what it is; fails with what they have instead.
    pub async fn wait_same_state(&self, patience: Duration) -> anyhow::Result<Option<String>> {
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
            if begun.elapsed() >= patience {
                return match silent {
                    Some(error) => Err(error),
                    None => bail!("the nodes do not come to the same position: {seen:?}"),
                };
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }
}
