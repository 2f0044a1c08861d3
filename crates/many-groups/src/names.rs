//! Names, how much each is wanted, and which group each belongs to.

use fastrand::Rng;

/// So many names of which each is wanted as often as its rank says.
#[derive(Debug)]
pub struct Names {
    /// How often one of the first so many is wanted, out of 1.
    up_to: Vec<f64>,
    groups: Vec<u32>,
}

impl Names {
    /// So many names over so many groups. The name of rank k is wanted in proportion to 1/k^skew, as Zipf found of words; 0: all alike.
    pub fn new(names: usize, skew: f64, groups: usize) -> Self {
        assert!(names > 0 && groups > 0, "there is a name and a group for it");
        let mut sum = 0.0;
        let mut up_to: Vec<f64> = (1..=names)
            .map(|rank| {
                sum += (rank as f64).powf(-skew);
                sum
            })
            .collect();
        up_to.iter_mut().for_each(|wanted| *wanted /= sum);
        let groups = (0..names as u64).map(|name| group_of(name, groups)).collect();
        Self { up_to, groups }
    }

    /// The group of a name that somebody wants now.
    pub fn wanted(&self, random: &mut Rng) -> u32 {
        let at = random.f64();
        let name = self.up_to.partition_point(|wanted| *wanted < at);
        self.groups[name.min(self.groups.len() - 1)]
    }

    /// How much of all requests is for each group.
    pub fn shares(&self, groups: usize) -> Vec<f64> {
        let mut shares = vec![0.0; groups];
        let mut before = 0.0;
        for (wanted, group) in self.up_to.iter().zip(&self.groups) {
            shares[*group as usize] += wanted - before;
            before = *wanted;
        }
        shares
    }
}

/// The group of a name by its hash: SplitMix64, whose every bit of input changes half of the output's.
fn group_of(name: u64, groups: usize) -> u32 {
    let mut z = name.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) % groups as u64) as u32
}

/// A time until something that happens at random so often, in seconds.
pub fn exponential(random: &mut Rng, mean: f64) -> f64 {
    // 1 - f is never 0.
    -mean * (1.0 - random.f64()).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_many_names_is_wanted_as_zipf_says() {
        let names = Names::new(1_000, 1.0, 1_000_000);
        let first = names.groups[0];
        let mut random = Rng::with_seed(1);
        let times = (0..100_000)
            .filter(|_| names.wanted(&mut random) == first)
            .count();
        // The thousandth harmonic number is 7.4855.
        let expected = 100_000.0 / 7.4855;
        assert!(
            (times as f64 / expected - 1.0).abs() < 0.03,
            "{times} in place of {expected}"
        );
    }

    #[test]
    fn equal_names_are_spread_evenly_and_shares_are_a_whole() {
        let shares = Names::new(100_000, 0.0, 12).shares(12);
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        for share in shares {
            assert!((share * 12.0 - 1.0).abs() < 0.05, "{share}");
        }
    }
}
