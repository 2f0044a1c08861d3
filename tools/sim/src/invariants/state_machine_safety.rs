//! State machine safety: two machines never apply different entries at the same index, and each applies
//! without gaps. Since a call is acknowledged when it is applied, a lost acknowledged call shows here as soon
//! as another entry is applied in its place.

use std::collections::HashMap;

use lock_node::simulation::Place;

use super::Check;

/// Checker of the applied entries.
pub struct StateMachineSafety {
    applied: HashMap<u64, (u64, u64)>,
    /// Last applied index of each machine since its last start.
    last: Vec<Option<u64>>,
    highest: u64,
}

impl StateMachineSafety {
    /// Creates the checker of a new run.
    pub fn new(machines: usize) -> Self {
        Self {
            applied: HashMap::new(),
            last: vec![None; machines],
            highest: 0,
        }
    }

    /// Records the start of a process, whose state is empty or from a snapshot.
    pub fn booted(&mut self, machine: usize) {
        self.last[machine] = None;
    }

    /// Checks an applied entry. `hash` is that of its bytes.
    pub fn applied(&mut self, machine: usize, at: Place, hash: u64) -> Check {
        let node = machine + 1;
        let before = self.last[machine].replace(at.index);
        self.highest = self.highest.max(at.index);
        if let Some(before) = before
            && at.index != before + 1
        {
            return Err(format!("node {node} applied {at} after index {before}"));
        }
        let known = *self.applied.entry(at.index).or_insert((at.term, hash));
        if known != (at.term, hash) {
            return Err(format!(
                "node {node} applied a different entry at index {}: of term {}, and earlier there was one of term {}",
                at.index, at.term, known.0
            ));
        }
        Ok(())
    }

    /// Checks the installation of a snapshot.
    pub fn replaced(&mut self, machine: usize, at: Place) -> Check {
        let before = self.last[machine].replace(at.index);
        if before.is_some_and(|before| before > at.index) {
            return Err(format!("the state of node {} went back to {at}", machine + 1));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_and_different_entries_are_violations() {
        let mut machines = StateMachineSafety::new(2);
        let place = |term, index| Place { term, index };
        assert_eq!(machines.applied(0, place(1, 1), 7), Ok(()));
        assert_eq!(machines.applied(0, place(1, 2), 8), Ok(()));
        assert!(machines.applied(1, place(2, 2), 8).is_err(), "another term");
        assert!(machines.applied(0, place(1, 4), 9).is_err(), "a gap");
        machines.booted(0);
        assert_eq!(machines.applied(0, place(1, 2), 8), Ok(()));
        assert!(machines.replaced(0, place(1, 1)).is_err(), "back");
    }
}
