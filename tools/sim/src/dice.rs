//! Random numbers from a seed.

use std::ops::Range;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Sequence of random numbers. Each part of the simulation has its own, so that a part that draws more often
/// does not change the numbers of the others.
#[derive(Debug)]
pub struct Dice {
    numbers: StdRng,
}

impl Dice {
    /// Creates the sequence of `seed` for one `purpose`.
    pub fn new(seed: u64, purpose: &str) -> Self {
        let purpose = xxhash_rust::xxh3::xxh3_64_with_seed(purpose.as_bytes(), seed);
        Self {
            numbers: StdRng::seed_from_u64(purpose),
        }
    }

    /// Draws a number of a range, which must not be empty.
    pub fn between(&mut self, range: Range<u64>) -> u64 {
        self.numbers.random_range(range)
    }

    /// Returns `true` in `permille` of a thousand cases.
    pub fn chance(&mut self, permille: u64) -> bool {
        self.between(0..1000) < permille
    }

    /// Draws one of the items.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.between(0..from.len() as u64) as usize]
    }

    /// Shuffles the items.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.between(0..last as u64 + 1) as usize);
        }
    }
}
