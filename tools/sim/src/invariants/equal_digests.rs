//! Equal digests at equal positions: the states of two replicas at the same position are equal. Each distinct
//! state is checked by the other invariants once.

use std::collections::HashMap;

use znode_store::Store;

/// Checker with the digest of each position.
#[derive(Default)]
pub struct EqualDigests {
    digests: HashMap<u64, u64>,
}

impl EqualDigests {
    /// Checks a machine's state; returns whether it is the first one at its position.
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
                "the state of node {} at position {position} differs from that of another node",
                machine + 1
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_states_at_one_position_are_a_violation() {
        let mut digests = EqualDigests::default();
        assert_eq!(digests.compare(0, 1, 7), Ok(true));
        assert_eq!(digests.compare(1, 1, 7), Ok(false));
        assert!(digests.compare(2, 1, 8).is_err());
    }
}
