//! What the locks guard: a register that is no part of the cluster, and whose calls never fail.

use lockgate_check::ClientId;
use lockgate_check::fenced::Write;

/// Whether the register looks at tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fences {
    /// It refuses a token that is smaller than one that it has seen.
    Checked,
    /// It takes what comes.
    Ignored,
}

/// What the lock guards: it is no part of the cluster, and none of its calls fails.
#[derive(Default)]
pub struct Storage {
    /// What it holds.
    pub value: u64,
    greatest: u64,
    /// All attempts to write it, in order.
    pub writes: Vec<Write>,
}

impl Storage {
    /// With this value.
    pub fn holding(value: u64) -> Self {
        Self {
            value,
            ..Self::default()
        }
    }

    /// Its value, unless the token is too old.
    pub fn read(&mut self, fences: Fences, token: u64) -> Option<u64> {
        self.admits(fences, token).then_some(self.value)
    }

    /// Takes a value, unless the token is too old.
    pub fn write(&mut self, fences: Fences, client: ClientId, token: u64, read: u64, value: u64) -> bool {
        let accepted = self.admits(fences, token);
        if accepted {
            self.value = value;
        }
        self.writes.push(Write {
            client,
            token,
            read,
            value,
            accepted,
        });
        accepted
    }

    fn admits(&mut self, fences: Fences, token: u64) -> bool {
        let admitted = fences == Fences::Ignored || token >= self.greatest;
        self.greatest = self.greatest.max(token);
        admitted
    }
}

#[cfg(test)]
mod tests {
    use lockgate_check::{Verdict, fenced};

    use super::*;

    #[test]
    fn a_register_with_fences_refuses_who_is_late() {
        let mut storage = Storage::default();
        assert_eq!(storage.read(Fences::Checked, 1), Some(0));
        assert_eq!(storage.read(Fences::Checked, 2), Some(0));
        assert!(!storage.write(Fences::Checked, 1, 1, 0, 10));
        assert!(storage.write(Fences::Checked, 2, 2, 0, 20));
        assert_eq!(fenced::check(0, &storage.writes), Verdict::Valid);
        let mut storage = Storage::default();
        assert_eq!(storage.read(Fences::Ignored, 1), Some(0));
        assert!(storage.write(Fences::Ignored, 2, 2, 0, 20));
        assert!(storage.write(Fences::Ignored, 1, 1, 0, 10));
        assert!(matches!(fenced::check(0, &storage.writes), Verdict::Violated(_)));
    }
}
