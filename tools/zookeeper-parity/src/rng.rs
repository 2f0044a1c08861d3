//! Random numbers for programs. Written here, so that a seed means the same program with every version of
//! every library: a difference must be reproducible.

/// SplitMix64 generator.
pub struct Rng(u64);

impl Rng {
    /// Creates the sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`. The bias of the remainder does not matter here.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).expect("usize has at most 64 bits");
        usize::try_from(self.bits() % end).expect("the remainder fits into a usize")
    }

    /// Returns `true` in `percent` of a hundred cases.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Draws one of the items.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// Draws one of the items by their weights.
    pub fn weighted<T: Copy>(&mut self, items: &[(usize, T)]) -> T {
        let total = items.iter().map(|(weight, _)| weight).sum();
        let mut left = self.below(total);
        for (weight, item) in items {
            match left.checked_sub(*weight) {
                None => return *item,
                Some(rest) => left = rest,
            }
        }
        unreachable!("the number is below the sum of the weights")
    }
}
