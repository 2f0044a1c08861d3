//! One seed from the beginning to the end, and what is told of it. The process must run nothing else: what it draws at random
//! is the seed's.

use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};

use crate::dice::Dice;
use crate::ending::Ending;
use crate::invariants::Looked;
use crate::plan::Plan;
use crate::stopwatch::Stopwatch;
use crate::world::World;

/// What became of a seed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// So many steps were asked for.
    pub steps_asked: u64,
    /// So many were made, with those of the ending.
    pub steps: u64,
    /// So long was simulated.
    pub simulated_ms: u64,
    /// So long it took.
    pub took_ms: u64,
    /// The hash of all that happened.
    pub trace: String,
    /// What was found wrong.
    pub violation: Option<String>,
    /// How long it took at the end until a healthy majority served, and until all agreed.
    pub ending: Option<Ending>,
    /// How much was looked at.
    pub looked: Looked,
    /// How often what went wrong.
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
        looked: world.looked(),
        struck: struck
            .map(|(kind, times)| (format!("{kind:?}"), *times))
            .collect(),
    }
}

/// Whatever asks the operating system for random bytes in this process gets them from the seed: the nodes, the runtimes, the
/// hash maps.
pub(crate) fn take_randomness_from(seed: u64) {
    mad_turmoil::rand::set_rng(StdRng::seed_from_u64(
        Dice::new(seed, "operating system").between(0..u64::MAX),
    ));
}

impl Report {
    /// What somebody types to see the same again.
    pub fn reproduce(&self) -> String {
        format!(
            "cargo run --profile checked -p lockgate-sim -- --seed {} --steps {}",
            self.seed, self.steps_asked
        )
    }

    /// Why the run says nothing, if it does not: what nobody looked at cannot be wrong.
    pub fn is_idle(&self) -> Option<&'static str> {
        let looked = &self.looked;
        match () {
            () if self.steps_asked < LONG_ENOUGH => None,
            () if looked.leaders == 0 => Some("nobody ever led"),
            () if looked.acknowledged == 0 => Some("nothing was ever acknowledged"),
            () => None,
        }
    }
}

/// Shorter runs may end before a leader is elected.
const LONG_ENOUGH: u64 = 5_000;
