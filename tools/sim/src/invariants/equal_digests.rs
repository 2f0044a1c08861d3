//! Equal digests at equal positions: the states of two replicas at one position are the same. Each state that is compared
//! was looked at by the other invariants once.

use std::collections::HashMap;

use znode_store::Store;

/// The digest at each position.
#[derive(Default)]
pub struct EqualDigests {
    digests: HashMap<u64, u64>,
}

impl EqualDigests {
    /// A machine's state. Says whether it is the first one at its position.
    pub fn seen(&mut self, machine: usize, store: &Store) -> Result<bool, String> {
        self.compare(machine, store.zxid().0, store.digest())
    }

    fn compare(&mut self, machine: usize, position: u64, digest: u64) -> Result<bool, String> {
        let mut first = false;
        let known = *self.digests.entry(position).or_insert_with(|| {
            first = true;
            digest
        });
        match known == digest {
            true => Ok(first),
            false => Err(format!(
                "the state of node {} at position {position} is another one than elsewhere",
                machine + 1
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_that_differ_are_noticed() {
        let mut digests = EqualDigests::default();
        assert_eq!(digests.compare(0, 1, 7), Ok(true));
        assert_eq!(digests.compare(1, 1, 7), Ok(false));
        assert!(digests.compare(2, 1, 8).is_err());
    }
}
