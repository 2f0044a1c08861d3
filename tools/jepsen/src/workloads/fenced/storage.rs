//! Resource that the locks protect: a register outside of the cluster, whose calls never fail.

use lockgate_check::ClientId;
use lockgate_check::fenced::Write;

/// Treatment of fencing tokens by the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fences {
    /// Rejects a token smaller than one that it has seen.
    Checked,
    /// Accepts every token.
    Ignored,
}

/// Register that the lock protects; outside of the cluster, and its calls never fail.
#[derive(Default)]
pub struct Storage {
    /// Current value.
    pub value: u64,
    greatest: u64,
    /// All attempts to write, in order.
    pub writes: Vec<Write>,
}

impl Storage {
    /// Creates a register with this value.
    pub fn holding(value: u64) -> Self {
        Self {
            value,
            ..Self::default()
        }
    }

    /// Returns the value, unless the token is too old.
    pub fn read(&mut self, fences: Fences, token: u64) -> Option<u64> {
        self.admits(fences, token).then_some(self.value)
    }

    /// Sets the value, unless the token is too old; returns whether it was set.
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
    fn register_that_checks_tokens_rejects_a_late_holder() {
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
