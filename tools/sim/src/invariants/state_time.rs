//! Correct times in the state, provided that less than half of the wall clocks are wrong.
//! They are never ahead. They may be behind for a while: a leader that does not know the clocks of all
//! members prefers one that is behind to one that is ahead. Once all members are connected they are not
//! behind either.
//! Correct clocks are correct only roughly: a machine that was paused together with its monotonic clock lacks
//! that time, and monotonic clocks are up to a fifth too fast or too slow (see `plan.rs`). A wall clock that
//! is wrong by less than a minute is used.

use super::Check;
use crate::machine::EPOCH_MS;
use crate::time::{MILLI, Micros};

/// Bound of the deviation. A run takes some minutes, and wrong clocks are wrong by up to an hour.
const BOUND_MS: u64 = 5 * 60_000;

/// Checker of the state's time; see the module.
pub struct StateTime {
    /// Less than half of the clocks are wrong.
    is_right: bool,
}

impl StateTime {
    /// Creates the checker; `is_right` says whether most clocks of the run are correct.
    pub fn new(is_right: bool) -> Self {
        Self { is_right }
    }

    /// Checks the time of the state after a command that was applied for the first time.
    pub fn check(&self, time_ms: u64, now: Micros) -> Check {
        match self.is_right && time_ms > true_ms(now) + BOUND_MS {
            true => Err(format!(
                "the state is {} s ahead",
                (time_ms - true_ms(now)) / 1_000
            )),
            false => Ok(()),
        }
    }

    /// Checks the time of the state after a command at the end.
    pub fn at_end(&self, time_ms: u64, now: Micros) -> Check {
        self.check(time_ms, now)?;
        match self.is_right && time_ms + BOUND_MS < true_ms(now) {
            true => Err(format!(
                "the state is {} s behind",
                (true_ms(now) - time_ms) / 1_000
            )),
            false => Ok(()),
        }
    }
}

fn true_ms(now: Micros) -> u64 {
    EPOCH_MS + now / MILLI
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SECOND;

    #[test]
    fn time_ahead_or_finally_behind_is_a_violation() {
        let (right, now) = (StateTime::new(true), 600 * SECOND);
        assert_eq!(right.check(true_ms(now) + BOUND_MS, now), Ok(()));
        assert!(right.check(true_ms(now) + BOUND_MS + 1, now).is_err());
        assert_eq!(right.check(0, now), Ok(()));
        assert!(right.at_end(true_ms(now) - BOUND_MS - 1, now).is_err());
        assert_eq!(right.at_end(true_ms(now) - BOUND_MS, now), Ok(()));
        assert_eq!(StateTime::new(false).at_end(0, now), Ok(()));
    }
}
