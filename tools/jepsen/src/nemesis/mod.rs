//! What happens to the nodes: one file for each family of faults.
//!
//! A nemesis brings one fault about and heals it, and shows by something that can be measured that there was one: a
//! counter, a state in /proc, a refused connection. A fault for which nothing shows that is no test, and makes its run
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
use crate::inside::Isolation;
use crate::network::{Cuts, Slot};
use crate::proxy::Proxy;
use crate::systems::System;
use crate::world::World;

/// What a nemesis has at hand.
#[derive(Clone)]
pub struct Field {
    /// The nodes.
    pub cluster: Arc<Cluster>,
    /// Who hears whom.
    pub cuts: Arc<Cuts>,
    /// What can be between peers.
    pub proxy: Arc<Proxy>,
    /// The clock of the run.
    pub world: World,
}

/// One fault after the other, of one kind.
pub trait Nemesis: Send {
    /// Brings the fault about. Says what it is and to whom it happens.
    fn begin<'a>(&'a mut self, field: &'a Field, rng: &'a mut Rng) -> BoxFuture<'a, anyhow::Result<String>>;

    /// How long it lasts.
    fn lasts(&self, rng: &mut Rng) -> Duration {
        Duration::from_millis(rng.u64(3000..5000))
    }

    /// Ends the fault, and says what shows that it was one. Also called after a `begin` that failed.
    fn heal<'a>(&'a mut self, field: &'a Field) -> BoxFuture<'a, anyhow::Result<Option<String>>>;
}

/// What a nemesis cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// File systems in images, mounted; the cell's nodes then have their data on them.
    Disks,
    /// Processes whose clock can be another one.
    FakeTime,
    /// A system whose members can change, and whose files are known here.
    Lockgate,
}

/// A nemesis as the command line names it.
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a few words.
    pub about: &'static str,
    /// How many nodes it needs.
    pub nodes: usize,
    /// What else.
    pub needs: &'static [Need],
    /// One for one run.
    pub make: fn() -> Box<dyn Nemesis>,
}

impl Kind {
    /// Why it cannot be had here, if so.
    pub fn impossible(&self, isolation: Isolation, system: System) -> Option<String> {
        self.needs.iter().find_map(|need| match need {
            Need::Disks if isolation != Isolation::Root => {
                Some("disks of its own need root, loop devices and namespaces".to_owned())
            }
            Need::Disks if !system.is_lockgate() => Some("only Lockgate's disks are known here".to_owned()),
            Need::FakeTime if !system.is_lockgate() => {
                Some("its clocks are known to be changed only in Lockgate".to_owned())
            }
            Need::FakeTime => clock::missing(),
            Need::Lockgate if !system.is_lockgate() => {
                Some("it is about Lockgate's own files or members".to_owned())
            }
            _ => None,
        })
    }
}

/// Under these nobody may be served for as long as they last. All others leave a majority that is connected and runs.
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

/// Where a majority is left, somebody is served again within this: some elections on a machine that is busy.
const SERVED_WITHIN_MS: f64 = 10_000.0;

/// The longest time in which no call may succeed, in milliseconds, if there is such a bound.
pub fn longest_silence_ms(name: &str) -> Option<f64> {
    (!MAY_STOP_ALL.contains(&name)).then_some(SERVED_WITHIN_MS)
}

/// All that there are.
pub fn all() -> Vec<Kind> {
    let mut all = vec![Kind {
        name: "none",
        about: "no faults: what the rest is compared with",
        nodes: 3,
        needs: &[],
        make: || Box::new(Quiet),
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

/// The one of this name.
pub fn find(name: &str) -> anyhow::Result<Kind> {
    let found = all().into_iter().find(|kind| kind.name == name);
    found.ok_or_else(|| anyhow::anyhow!("there is no nemesis {name}; --list shows all"))
}

/// Nothing happens.
struct Quiet;

impl Nemesis for Quiet {
    fn begin<'a>(&'a mut self, _: &'a Field, _: &'a mut Rng) -> BoxFuture<'a, anyhow::Result<String>> {
        Box::pin(async { Ok("nothing".to_owned()) })
    }

    fn heal<'a>(&'a mut self, _: &'a Field) -> BoxFuture<'a, anyhow::Result<Option<String>>> {
        Box::pin(async { Ok(Some("nothing was to happen".to_owned())) })
    }
}

impl Field {
    /// The leader; if nobody is known to lead, anybody.
    pub async fn leader_or_any(&self, rng: &mut Rng) -> Slot {
        match self.cluster.leader().await {
            Some(leader) => leader,
            None => self.any(rng),
        }
    }

    /// Any member.
    pub fn any(&self, rng: &mut Rng) -> Slot {
        let members = self.cluster.members();
        members[rng.usize(0..members.len())]
    }

    /// Members of which one may go for ever. Of the first nodes one always stays: what they remember of locks (their history)
    /// is each node's own, and checkers ask for it.
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

    /// Who does not lead, in any order.
    pub async fn followers(&self, rng: &mut Rng) -> Vec<Slot> {
        let leader = self.leader_or_any(rng).await;
        let mut others = self.cluster.members();
        others.retain(|slot| *slot != leader);
        rng.shuffle(&mut others);
        others
    }

    /// More than half of the members, in any order.
    pub fn majority(&self, rng: &mut Rng) -> Vec<Slot> {
        let mut members = self.cluster.members();
        rng.shuffle(&mut members);
        members.truncate(members.len() / 2 + 1);
        members
    }
}
