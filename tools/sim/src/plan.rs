//! What a seed decides before anything happens: how many machines and clients there are, how fast clocks are, how often what
//! goes wrong. Each seed leaves some kinds of faults out, so that what one kind hides another run shows.

use std::collections::BTreeMap;
use std::time::Duration;

use raft_node::{MemberAddress, NodeConfig, SnapshotConfig};

use crate::agenda::{MILLI, Micros};
use crate::dice::Dice;
use crate::faults::Kind;

/// Clocks of machines are slower and faster than right ones by so much at most, in thousandths: far worse than real ones.
const RATES: std::ops::Range<u64> = 850..1_200;

/// How often of a thousand times most clients stand still after a heartbeat.
const FEW_PAUSES: u64 = 20;

/// The same in runs that are about silent sessions.
const MANY_PAUSES: std::ops::Range<u64> = 100..400;

/// A copy of a disk comes back only when certain others know, so it is drawn so many times as often as the other kinds.
const OLD_IMAGES: usize = 3;

/// Segments of the log are as short as this, so that runs have many.
const SEGMENT_BYTES: usize = 32 * 1024;

/// What a run is made of.
#[derive(Debug)]
pub struct Plan {
    /// The seed of everything.
    pub seed: u64,
    /// How many machines there are.
    pub machines: usize,
    /// How many clients.
    pub clients: u64,
    /// A snapshot is made after so many entries.
    pub snapshot_every: u64,
    /// Faults come in distances of up to this.
    pub calm: Micros,
    /// Whether only that goes wrong which leaves a majority whole.
    pub is_gentle: bool,
    /// What can go wrong.
    pub kinds: Vec<Kind>,
    /// How often of a thousand times a client stands still after a heartbeat.
    pub client_pauses: u64,
    /// How many of a thousand requests of clients are lost.
    pub client_loss: u64,
    /// How many of a thousand come twice.
    pub client_copies: u64,
    /// The clocks, in thousandths of a right one's rate.
    pub rates: Vec<u64>,
    /// The machines whose wall clocks may be wrong.
    pub wrong_clocks: Vec<usize>,
}

impl Plan {
    /// The plan of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut dice = Dice::new(seed, "plan");
        let machines = if dice.chance(700) { 3 } else { 5 };
        let steady = dice.chance(300);
        let rates = (0..machines).map(|_| if steady { 1_000 } else { dice.between(RATES) });
        let rates = rates.collect();
        let kinds = Kind::ALL.into_iter().filter(|kind| *kind != Kind::OldImage);
        let mut kinds: Vec<Kind> = kinds.filter(|_| dice.chance(650)).collect();
        // By dice of its own, so that the other seeds are the runs that they were.
        if Dice::new(seed, "old images").chance(500) {
            kinds.extend([Kind::OldImage; OLD_IMAGES]);
        }
        let gentle = dice.chance(250);
        let mut plan = Self {
            seed,
            machines,
            clients: dice.between(3..13),
            snapshot_every: dice.between(20..400),
            calm: dice.between(300..6_000) * MILLI,
            is_gentle: gentle,
            kinds,
            client_pauses: FEW_PAUSES,
            client_loss: if dice.chance(500) { dice.between(0..60) } else { 0 },
            client_copies: if dice.chance(500) { dice.between(0..60) } else { 0 },
            rates,
            wrong_clocks: draw_wrong_clocks(seed, machines),
        };
        if gentle || dice.chance(300) {
            plan.client_pauses = dice.between(MANY_PAUSES);
        }
        if gentle {
            plan.kinds = dice.pick(&Kind::GENTLE).to_vec();
            plan.calm = dice.between(1_000..4_000) * MILLI;
            // By right clocks nothing has to be allowed for wrong ones.
            if dice.chance(500) {
                plan.rates.fill(1_000);
            }
        }
        plan
    }

    /// Whether less than half of the wall clocks are wrong at any time.
    pub fn most_clocks_are_right(&self) -> bool {
        self.wrong_clocks.len() * 2 < self.machines
    }

    /// A plan in which nothing goes wrong by itself.
    pub fn quiet(seed: u64) -> Self {
        let plan = Self::draw(seed);
        Self {
            machines: 3,
            clients: 3,
            kinds: Vec::new(),
            client_loss: 0,
            client_copies: 0,
            rates: vec![1_000; 3],
            wrong_clocks: Vec::new(),
            ..plan
        }
    }

    /// What the node of a machine is told.
    pub fn config(&self, machine: usize) -> NodeConfig {
        let member = |number: u64| {
            let address = MemberAddress {
                peer: format!("machine-{number}:7501"),
                http: format!("machine-{number}:7401"),
            };
            (number, address)
        };
        let members: BTreeMap<_, _> = (1..=self.machines as u64).map(member).collect();
        let mut config = NodeConfig::new(machine as u64 + 1, "simulated", members, "/data");
        config.log.segment_bytes = SEGMENT_BYTES;
        // Few entries in memory, so that followers and the apply read from the disk, too.
        config.log.cached_bytes = SEGMENT_BYTES;
        config.history.enabled = false;
        config.snapshots = SnapshotConfig {
            every_entries: self.snapshot_every,
            keep_entries: self.snapshot_every / 4,
            ..SnapshotConfig::default()
        };
        config.sweeps.empty_for = Duration::from_secs(2);
        config.sweeps.every = Duration::from_secs(1);
        config.propose_timeout = Duration::from_secs(5);
        config
    }
}

/// Mostly less than half of the machines: then times in the state must be right. By dice of its own, so that it changes nothing else of
/// a seed.
fn draw_wrong_clocks(seed: u64, machines: usize) -> Vec<usize> {
    let mut dice = Dice::new(seed, "wall clocks");
    let mut wrong: Vec<usize> = (0..machines).collect();
    dice.shuffle(&mut wrong);
    if dice.chance(750) {
        wrong.truncate((machines - 1) / 2);
    }
    wrong
}
