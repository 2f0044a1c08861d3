//! Random numbers for the names of calls, fetched from the operating system many at a time: each fetch is a system call, and every
//! acquire needs two numbers. They are no secrets, only never the same.

use parking_lot::Mutex;
use znode_store::AttemptId;

/// Random bytes fetched at a time: for twenty acquires.
const FETCHED_BYTES: usize = 480;

/// See the module.
pub(super) struct Draws(Mutex<Fetched>);

struct Fetched {
    bytes: [u8; FETCHED_BYTES],
    used: usize,
}

impl Draws {
    /// Nothing is fetched yet.
    pub fn new() -> Self {
        Self(Mutex::new(Fetched {
            bytes: [0; FETCHED_BYTES],
            used: FETCHED_BYTES,
        }))
    }

    /// The name of a call, in those of its contenders.
    pub fn guid(&self) -> u128 {
        u128::from_le_bytes(self.draw())
    }

    /// The number of a call that was sent so often before.
    pub fn attempt(&self, retry: u16) -> AttemptId {
        AttemptId::of_retry(retry, u64::from_le_bytes(self.draw()))
    }

    fn draw<const N: usize>(&self) -> [u8; N] {
        let mut fetched = self.0.lock();
        if fetched.used + N > FETCHED_BYTES {
            getrandom::fill(&mut fetched.bytes).expect("the operating system has random numbers");
            fetched.used = 0;
        }
        let (begin, end) = (fetched.used, fetched.used + N);
        fetched.used = end;
        fetched.bytes[begin..end].try_into().expect("it is as long")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_bytes_are_handed_out_twice() {
        let draws = Draws::new();
        let mut seen = HashSet::new();
        for _ in 0..10 * FETCHED_BYTES {
            assert!(seen.insert(draws.draw::<8>()));
            let [first, second] = [0, 8].map(|at| draws.guid().to_le_bytes()[at..at + 8].try_into().unwrap());
            assert!(seen.insert(first) && seen.insert(second));
        }
    }
}
