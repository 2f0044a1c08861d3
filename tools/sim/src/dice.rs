//! Chance, from a seed.

use std::ops::Range;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// A sequence of random numbers. Each part of a simulation has its own, so that one that asks more often does not change
/// what the others get.
#[derive(Debug)]
pub struct Dice {
    numbers: StdRng,
}

impl Dice {
    /// The sequence of `seed` for one `purpose`.
    pub fn new(seed: u64, purpose: &str) -> Self {
        let purpose = xxhash_rust::xxh3::xxh3_64_with_seed(purpose.as_bytes(), seed);
        Self {
            numbers: StdRng::seed_from_u64(purpose),
        }
    }

    /// One of a range, which must not be empty.
    pub fn between(&mut self, range: Range<u64>) -> u64 {
        self.numbers.random_range(range)
    }

    /// Yes, in so many of a thousand cases.
    pub fn chance(&mut self, permille: u64) -> bool {
        self.between(0..1000) < permille
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.between(0..from.len() as u64) as usize]
    }

    /// An order of these.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.between(0..last as u64 + 1) as usize);
        }
    }
}
