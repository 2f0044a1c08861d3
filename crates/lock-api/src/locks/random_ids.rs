//! Random numbers for the names of calls, fetched from the operating system many at a time: each fetch is a system
//! call, and every acquire needs two numbers. They must be unique, not secret.

use parking_lot::Mutex;
use znode_store::AttemptId;

/// Random bytes fetched at a time, enough for twenty acquires.
const BUFFER_BYTES: usize = 480;

/// Generator of call names and attempt numbers.
pub(super) struct IdGenerator(Mutex<RandomBuffer>);

struct RandomBuffer {
    bytes: [u8; BUFFER_BYTES],
    used: usize,
}

impl IdGenerator {
    /// Creates a generator with an empty buffer.
    pub fn new() -> Self {
        Self(Mutex::new(RandomBuffer {
            bytes: [0; BUFFER_BYTES],
            used: BUFFER_BYTES,
        }))
    }

    /// Returns the name of a call, which is part of the names of its contenders.
    pub fn guid(&self) -> u128 {
        u128::from_le_bytes(self.next_bytes())
    }

    /// Returns the attempt number of a call that was sent `retry` times before.
    pub fn attempt(&self, retry: u16) -> AttemptId {
        AttemptId::of_retry(retry, u64::from_le_bytes(self.next_bytes()))
    }

    fn next_bytes<const N: usize>(&self) -> [u8; N] {
        let mut buffer = self.0.lock();
        if buffer.used + N > BUFFER_BYTES {
            getrandom::fill(&mut buffer.bytes).expect("the operating system has random numbers");
            buffer.used = 0;
        }
        let (begin, end) = (buffer.used, buffer.used + N);
        buffer.used = end;
        buffer.bytes[begin..end].try_into().expect("it is as long")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_bytes_are_handed_out_twice() {
        let ids = IdGenerator::new();
        let mut seen = HashSet::new();
        for _ in 0..10 * BUFFER_BYTES {
            assert!(seen.insert(ids.next_bytes::<8>()));
            let [first, second] = [0, 8].map(|at| ids.guid().to_le_bytes()[at..at + 8].try_into().unwrap());
            assert!(seen.insert(first) && seen.insert(second));
        }
    }
}
