//! Plan of a seed, drawn before anything happens: the number of machines and clients, the rates of clocks,
//! the kinds and frequency of faults. Each seed omits some kinds of faults, so that a problem that one kind
//! hides shows in another run.

use std::collections::BTreeMap;
use std::time::Duration;

use lock_node::{MemberAddress, NodeConfig, SnapshotConfig};

use crate::dice::Dice;
use crate::faults::Kind;
use crate::time::{MILLI, Micros};

/// Range of clock rates in thousandths of a correct clock's; far worse than real clocks.
const RATES: std::ops::Range<u64> = 850..1_200;

/// Usual number of pauses of a client in a thousand heartbeats.
const FEW_PAUSES: u64 = 20;

/// Number of pauses in runs that focus on silent sessions.
const MANY_PAUSES: std::ops::Range<u64> = 100..400;

/// Weight of the fault with an older disk image. The image is used only once certain machines know of it, so
/// the fault is drawn this many times as often as the others.
const OLD_IMAGES: usize = 3;

/// Size of the log's segments; small, so that runs have many.
const SEGMENT_BYTES: usize = 32 * 1024;

/// Parameters of a run.
#[derive(Debug)]
pub struct Plan {
    /// Seed of everything.
    pub seed: u64,
    /// Number of machines.
    pub machines: usize,
    /// Number of clients.
    pub clients: u64,
    /// Number of entries between two snapshots.
    pub snapshot_every: u64,
    /// Maximum time between two faults.
    pub calm: Micros,
    /// Only faults happen that leave a majority intact.
    pub is_gentle: bool,
    /// Kinds of faults in this run.
    pub kinds: Vec<Kind>,
    /// Pauses of a client in a thousand heartbeats.
    pub client_pauses: u64,
    /// Requests of clients in a thousand that are lost.
    pub client_loss: u64,
    /// Requests in a thousand that arrive twice.
    pub client_copies: u64,
    /// Clock rates in thousandths of a correct clock's.
    pub rates: Vec<u64>,
    /// Machines whose wall clocks may be wrong.
    pub wrong_clocks: Vec<usize>,
    /// Number of ephemeral znodes of ended sessions that one log entry removes; `None`: as many as outside the simulation, which is more than
    /// a session has here.
    pub removals_per_entry: Option<usize>,
}

impl Plan {
    /// Draws the plan of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut dice = Dice::new(seed, "plan");
        let machines = if dice.chance(700) { 3 } else { 5 };
        let steady = dice.chance(300);
        let rates = (0..machines).map(|_| if steady { 1_000 } else { dice.between(RATES) });
        let rates = rates.collect();
        let kinds = Kind::ALL.into_iter().filter(|kind| *kind != Kind::OldImage);
        let mut kinds: Vec<Kind> = kinds.filter(|_| dice.chance(650)).collect();
        // Drawn from separate dice, so that the other seeds stay the same runs as before.
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
            removals_per_entry: draw_removals_per_entry(seed),
        };
        if gentle || dice.chance(300) {
            plan.client_pauses = dice.between(MANY_PAUSES);
        }
        if gentle {
            plan.kinds = dice.pick(&Kind::GENTLE).to_vec();
            plan.calm = dice.between(1_000..4_000) * MILLI;
            // With correct clocks the bounds are tighter.
            if dice.chance(500) {
                plan.rates.fill(1_000);
            }
        }
        plan
    }

    /// Returns whether less than half of the wall clocks are wrong at any time.
    pub fn most_clocks_are_right(&self) -> bool {
        self.wrong_clocks.len() * 2 < self.machines
    }

    /// Returns a plan without random faults.
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

    /// Returns the configuration of a machine's node.
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
        config.raft.log.segment_bytes = SEGMENT_BYTES;
        // Only few entries are cached, so that followers and the apply loop read from the disk as well.
        config.raft.log.cached_bytes = SEGMENT_BYTES;
        config.history.enabled = false;
        config.raft.snapshots = SnapshotConfig {
            every_entries: self.snapshot_every,
            keep_entries: self.snapshot_every / 4,
            ..SnapshotConfig::default()
        };
        config.sweeps.empty_for = Duration::from_secs(2);
        config.sweeps.every = Duration::from_secs(1);
        config.raft.propose_timeout = Duration::from_secs(5);
        config
    }
}

/// Draws the machines with wrong wall clocks: mostly less than half, in which case times in the state must be
/// correct. Drawn from separate dice, so that nothing else of a seed changes.
/// Draws the share of a log entry in the ends of sessions and in grants to many waiters, from separate dice.
fn draw_removals_per_entry(seed: u64) -> Option<usize> {
    let mut dice = Dice::new(seed, "removals per entry");
    dice.chance(300).then(|| dice.between(1..4) as usize)
}

fn draw_wrong_clocks(seed: u64, machines: usize) -> Vec<usize> {
    let mut dice = Dice::new(seed, "wall clocks");
    let mut wrong: Vec<usize> = (0..machines).collect();
    dice.shuffle(&mut wrong);
    if dice.chance(750) {
        wrong.truncate((machines - 1) / 2);
    }
    wrong
}
