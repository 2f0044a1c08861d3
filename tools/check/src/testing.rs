//! Shared by the tests of several checkers: random choices from a seed.

/// Deterministic random number generator (SplitMix64), the same for a seed on all platforms.
pub struct Chooser(u64);

impl Chooser {
    /// Creates a generator: the seed determines all numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}
