//! Nemeses: one file for each family of faults.
//! A nemesis begins one fault, heals it, and proves by a measurement that the fault had an effect: a counter,
//! a state in /proc, a refused connection. A fault without such evidence is no test, and makes its run
//! invalid.

pub mod chaos;
pub mod clock;
pub mod clock_rate;
pub mod corrupt;
pub mod disk;
pub mod flapping;
pub mod flipped_bits;
pub mod members;
pub mod old_directory;
pub mod partition;
pub mod pause;
pub mod power;
pub mod process;
pub mod schedule;
pub mod slow_network;

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::BoxFuture;

use crate::cluster::Cluster;
use crate::isolation::Isolation;
use crate::network::{Cuts, Slot};
use crate::proxy::Proxy;
use crate::systems::System;
use crate::world::World;

/// Everything that a nemesis acts on.
#[derive(Clone)]
pub struct Testbed {
    /// Nodes of the cell.
    pub cluster: Arc<Cluster>,
    /// Network partitions.
    pub cuts: Arc<Cuts>,
    /// Proxy between peers.
    pub proxy: Arc<Proxy>,
    /// Clock of the run.
    pub world: World,
}

/// Nemesis of one kind: one fault after the other.
pub trait Nemesis: Send {
    /// Begins a fault; returns a description of it and of its targets.
    fn begin<'a>(
        &'a mut self,
        testbed: &'a Testbed,
        rng: &'a mut Rng,
    ) -> BoxFuture<'a, anyhow::Result<String>>;

    /// Returns the duration of the fault.
    fn duration(&self, rng: &mut Rng) -> Duration {
        Duration::from_millis(rng.u64(3000..5000))
    }

    /// Ends the fault; returns evidence of its effect. Also called after a `begin` that failed.
    fn heal<'a>(&'a mut self, testbed: &'a Testbed) -> BoxFuture<'a, anyhow::Result<Option<String>>>;
}

/// Prerequisite of a nemesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Mounted file systems in images, on which the nodes of the cell have their data.
    Disks,
    /// Processes whose clocks can be changed.
    FakeTime,
    /// A system whose membership can change, and whose file formats this program knows.
    Lockgate,
}

/// Kind of nemesis, as named on the command line.
pub struct Kind {
    /// Name of the kind.
    pub name: &'static str,
    /// Short description.
    pub about: &'static str,
    /// Number of nodes that it needs.
    pub nodes: usize,
    /// Prerequisites.
    pub needs: &'static [Need],
    /// Creates the nemesis for one run.
    pub make: fn() -> Box<dyn Nemesis>,
}

impl Kind {
    /// Returns the reason if this nemesis cannot run with this isolation and system.
    pub fn impossible(&self, isolation: Isolation, system: System) -> Option<String> {
        self.needs.iter().find_map(|need| match need {
            Need::Disks if isolation != Isolation::Root => {
                Some("separate disks need root, loop devices and namespaces".to_owned())
            }
            Need::Disks if !system.is_lockgate() => Some("disk faults support Lockgate only".to_owned()),
            Need::FakeTime if !system.is_lockgate() => Some("clock faults support Lockgate only".to_owned()),
            Need::FakeTime => clock::missing(),
            Need::Lockgate if !system.is_lockgate() => {
                Some("this nemesis changes Lockgate's own files or members".to_owned())
            }
            _ => None,
        })
    }
}

/// Nemeses under which no client may succeed for as long as a fault lasts. All others leave a connected
/// majority running.
const MAY_STOP_ALL: &[&str] = &[
    "flapping",
    "slow-network",
    "kill-majority",
    "kill-all",
    "pause-all",
    "full-disk",
    "power-cut-majority",
    "power-cut-all",
    "chaos",
    "chaos-disks",
];

/// Bound in which a call must succeed where a majority is left: some elections on a busy machine.
const SERVED_WITHIN_MS: f64 = 10_000.0;

/// Returns the longest time in milliseconds in which no call may succeed, if there is such a bound.
pub fn longest_silence_ms(name: &str) -> Option<f64> {
    (!MAY_STOP_ALL.contains(&name)).then_some(SERVED_WITHIN_MS)
}

/// Returns all kinds.
pub fn all() -> Vec<Kind> {
    let mut all = vec![Kind {
        name: "none",
        about: "no faults: the baseline for comparisons",
        nodes: 3,
        needs: &[],
        make: || Box::new(NoFaults),
    }];
    all.extend(partition::kinds());
    all.extend(flapping::kinds());
    all.extend(slow_network::kinds());
    all.extend(process::kinds());
    all.extend(pause::kinds());
    all.extend(clock::kinds());
    all.extend(clock_rate::kinds());
    all.extend(disk::kinds());
    all.extend(power::kinds());
    all.extend(corrupt::kinds());
    all.extend(old_directory::kinds());
    all.extend(flipped_bits::kinds());
    all.extend(members::kinds());
    all.extend(chaos::kinds());
    all
}

/// Returns the kind with this name.
pub fn find(name: &str) -> anyhow::Result<Kind> {
    let found = all().into_iter().find(|kind| kind.name == name);
    found.ok_or_else(|| anyhow::anyhow!("there is no nemesis {name}; --list shows all"))
}

/// Nemesis without faults.
struct NoFaults;

impl Nemesis for NoFaults {
    fn begin<'a>(&'a mut self, _: &'a Testbed, _: &'a mut Rng) -> BoxFuture<'a, anyhow::Result<String>> {
        Box::pin(async { Ok("nothing".to_owned()) })
    }

    fn heal<'a>(&'a mut self, _: &'a Testbed) -> BoxFuture<'a, anyhow::Result<Option<String>>> {
        Box::pin(async { Ok(Some("no fault was intended".to_owned())) })
    }
}

impl Testbed {
    /// Returns the leader, or any member if no leader is known.
    pub async fn leader_or_any(&self, rng: &mut Rng) -> Slot {
        match self.cluster.leader().await {
            Some(leader) => leader,
            None => self.any(rng),
        }
    }

    /// Returns any member.
    pub fn any(&self, rng: &mut Rng) -> Slot {
        let members = self.cluster.members();
        members[rng.usize(0..members.len())]
    }

    /// Returns the members of which one may be removed permanently. One of the initial nodes always stays:
    /// each node has its own lock history, and checkers read that of the initial nodes.
    pub fn expendable(&self) -> Vec<Slot> {
        let cluster = &self.cluster;
        let is_first = |slot: &Slot| cluster.node(*slot).id <= cluster.size as u64;
        let members = cluster.members();
        let first = members.iter().filter(|slot| is_first(slot)).count();
        members
            .into_iter()
            .filter(|slot| first > 1 || !is_first(slot))
            .collect()
    }

    /// Returns the followers in random order.
    pub async fn followers(&self, rng: &mut Rng) -> Vec<Slot> {
        let leader = self.leader_or_any(rng).await;
        let mut others = self.cluster.members();
        others.retain(|slot| *slot != leader);
        rng.shuffle(&mut others);
        others
    }

    /// Returns more than half of the members in random order.
    pub fn majority(&self, rng: &mut Rng) -> Vec<Slot> {
        let mut members = self.cluster.members();
        rng.shuffle(&mut members);
        members.truncate(members.len() / 2 + 1);
        members
    }
}
