//! Log matching: if two logs have an entry of the same index and term, the logs are equal up to it. This
//! follows from two properties that are visible at each append: such entries are equal, and so are the index
//! and term of their predecessors.

use std::collections::HashMap;

use lock_node::simulation::Place;

use super::Check;

/// Checker with all entries that any log ever had.
#[derive(Default)]
pub struct LogMatching {
    entries: HashMap<Place, (u64, Option<Place>)>,
}

impl LogMatching {
    /// Returns the number of entries.
    pub fn entries(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Checks an entry of a machine's log with its predecessor. `hash` is that of the entry's bytes.
    pub fn appended(&mut self, machine: usize, at: Place, hash: u64, before: Option<Place>) -> Check {
        let node = machine + 1;
        let (known, known_before) = *self.entries.entry(at).or_insert((hash, before));
        if known != hash {
            return Err(format!(
                "entry {at} of node {node} differs from that of another node"
            ));
        }
        // The first entry of a log may have no predecessor because that was purged.
        match (known_before, before) {
            (Some(there), Some(here)) if there != here => Err(format!(
                "entry {at} follows {here} at node {node}, and {there} elsewhere"
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(term: u64, index: u64) -> Place {
        Place { term, index }
    }

    #[test]
    fn diverging_logs_are_a_violation() {
        let mut logs = LogMatching::default();
        assert_eq!(logs.appended(0, place(1, 2), 7, Some(place(1, 1))), Ok(()));
        assert_eq!(logs.appended(1, place(1, 2), 7, Some(place(1, 1))), Ok(()));
        assert_eq!(
            logs.appended(1, place(2, 2), 8, Some(place(1, 1))),
            Ok(()),
            "another term"
        );
        assert!(logs.appended(2, place(1, 2), 9, Some(place(1, 1))).is_err());
        assert!(logs.appended(2, place(1, 2), 7, Some(place(0, 1))).is_err());
    }
}
