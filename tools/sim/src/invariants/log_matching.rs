//! Log matching: if two logs have an entry of the same index and term, they are the same up to there. It follows from two
//! things that can be seen at each append: such entries are the same, and so are the index and term before them.

use std::collections::HashMap;

use raft_node::simulation::Place;

use super::Check;

/// All entries that ever stood in a log.
#[derive(Default)]
pub struct LogMatching {
    entries: HashMap<Place, (u64, Option<Place>)>,
}

impl LogMatching {
    /// How many entries there were.
    pub fn entries(&self) -> u64 {
        self.entries.len() as u64
    }

    /// An entry stands in a machine's log, behind another one. `hash` is that of its bytes.
    pub fn appended(&mut self, machine: usize, at: Place, hash: u64, before: Option<Place>) -> Check {
        let node = machine + 1;
        let (known, known_before) = *self.entries.entry(at).or_insert((hash, before));
        if known != hash {
            return Err(format!("entry {at} of node {node} is another one than elsewhere"));
        }
        // The first entry of a log may have nothing before it because that was purged.
        match (known_before, before) {
            (Some(there), Some(here)) if there != here => Err(format!(
                "before entry {at} stands {here} at node {node}, and {there} elsewhere"
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
    fn logs_that_part_are_noticed() {
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
