//! Run of one seed from beginning to end, with its report. The process must run nothing else, since all its
//! random numbers come from the seed.

use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};

use crate::dice::Dice;
use crate::ending::Ending;
use crate::invariants::Coverage;
use crate::plan::Plan;
use crate::stopwatch::Stopwatch;
use crate::world::World;

/// Report of a seed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Number of steps requested.
    pub steps_asked: u64,
    /// Number of steps made, including those of the ending.
    pub steps: u64,
    /// Simulated time.
    pub simulated_ms: u64,
    /// Real time.
    pub took_ms: u64,
    /// Hash of all events.
    pub trace: String,
    /// Violation, if one was found.
    pub violation: Option<String>,
    /// Times at the end until a healthy majority served, and until all machines agreed.
    pub ending: Option<Ending>,
    /// Amounts of checked items.
    pub coverage: Coverage,
    /// Number of faults of each kind.
    pub struck: Vec<(String, u64)>,
}

/// Runs a seed in this process, which must not have run one before.
pub fn run(seed: u64, steps: u64) -> Report {
    take_randomness_from(seed);
    let began = Stopwatch::start();
    let mut world = World::new(Plan::draw(seed));
    let ended = world.run(steps).and_then(|()| world.finish());
    let (violation, ending) = match ended {
        Ok(ending) => (None, Some(ending)),
        Err(violation) => (Some(violation), None),
    };
    let struck = world.struck().iter();
    Report {
        seed,
        steps_asked: steps,
        steps: world.steps(),
        simulated_ms: world.ticks(),
        took_ms: began.elapsed_ms(),
        trace: format!("{:016x}", world.trace()),
        violation,
        ending,
        coverage: world.coverage(),
        struck: struck
            .map(|(kind, times)| (format!("{kind:?}"), *times))
            .collect(),
    }
}

/// Replaces the operating system's random bytes in this process by those of the seed, for the nodes, the
/// runtimes and the hash maps.
pub(crate) fn take_randomness_from(seed: u64) {
    mad_turmoil::rand::set_rng(StdRng::seed_from_u64(
        Dice::new(seed, "operating system").between(0..u64::MAX),
    ));
}

impl Report {
    /// Returns the command that repeats the run.
    pub fn reproduce(&self) -> String {
        format!(
            "cargo run --profile checked -p lockgate-sim -- --seed {} --steps {}",
            self.seed, self.steps_asked
        )
    }

    /// Returns the reason if the run proves nothing because nothing happened.
    pub fn is_idle(&self) -> Option<&'static str> {
        let coverage = &self.coverage;
        match () {
            () if self.steps_asked < LONG_ENOUGH => None,
            () if coverage.leaders == 0 => Some("no leader was ever elected"),
            () if coverage.acknowledged == 0 => Some("no call was ever acknowledged"),
            () => None,
        }
    }
}

/// Number of steps below which a run may end before a leader is elected.
const LONG_ENOUGH: u64 = 5_000;
