//! Random bytes, fetched from the operating system many at a time: each fetch is a system call, and every acquire needs several numbers.

use raft_log::sync::Mutex;

/// Random bytes fetched at a time, enough for ten acquires that open a lease.
const BUFFER_BYTES: usize = 480;

/// Source of random bytes, fit for secrets.
pub(crate) struct RandomBytes(Mutex<RandomBuffer>);

struct RandomBuffer {
    bytes: [u8; BUFFER_BYTES],
    used: usize,
}

impl RandomBytes {
    /// Creates a source with an empty buffer.
    pub fn new() -> Self {
        Self(Mutex::new(RandomBuffer {
            bytes: [0; BUFFER_BYTES],
            used: BUFFER_BYTES,
        }))
    }

    /// Returns the next bytes.
    pub fn next<const N: usize>(&self) -> [u8; N] {
        const { assert!(N <= BUFFER_BYTES) };
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
        let random = RandomBytes::new();
        let mut seen = HashSet::new();
        for _ in 0..10 * BUFFER_BYTES {
            assert!(seen.insert(random.next::<8>()));
            let longer = random.next::<16>();
            let [first, second] = [0, 8].map(|at| longer[at..at + 8].try_into().unwrap());
            assert!(seen.insert(first) && seen.insert(second));
        }
    }
}
