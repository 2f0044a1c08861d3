//! Deadline of a session, without a clock: pure functions.

use std::time::Duration;

use crate::clock::BootInstant;

/// Safety margin that is subtracted from the TTL of a session, for differences between two machines.
///
/// The cluster counts the TTL from the arrival of a heartbeat, on its own clock. The client counts from *sending* it, which is earlier, so
/// network delays are covered already. The margin covers a clock that is slower than the cluster's, and the time to stop the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Margin {
    /// Maximum rate in thousandths by which the local clock may be slower than those of the servers.
    pub clock_rate_per_mille: u32,
    /// Time between the reported loss and the end of the TTL, in which the program can stop its work.
    pub notice: Duration,
}

impl Default for Margin {
    /// One per cent, which is a hundred times the error of a quartz, and 100 ms.
    fn default() -> Self {
        Self {
            clock_rate_per_mille: 10,
            notice: Duration::from_millis(100),
        }
    }
}

impl Margin {
    /// Returns the end of the time in which a session surely lives, after a heartbeat that was sent at `sent` and confirmed for `ttl`.
    pub(crate) fn valid_until(self, sent: BootInstant, ttl: Duration) -> BootInstant {
        let drift = ttl.saturating_mul(self.clock_rate_per_mille) / 1000;
        sent + ttl.saturating_sub(drift).saturating_sub(self.notice)
    }
}

/// Returns the moment from which a session is uncertain. Heartbeats are sent every third of the TTL, so one has failed by then.
pub(crate) fn doubtful_from(sent: BootInstant, ttl: Duration) -> BootInstant {
    sent + ttl / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn valid_for(margin: Margin, ttl_ms: u64) -> u128 {
        let sent = BootInstant::now();
        (margin.valid_until(sent, Duration::from_millis(ttl_ms)) - sent).as_millis()
    }

    #[test]
    fn the_margin_is_taken_off() {
        assert_eq!(valid_for(Margin::default(), 10_000), 9_800);
        assert_eq!(valid_for(Margin::default(), 2_000), 1_880);
        let none = Margin {
            clock_rate_per_mille: 0,
            notice: Duration::ZERO,
        };
        assert_eq!(valid_for(none, 2_000), 2_000);
    }

    #[test]
    fn a_margin_beyond_the_time_leaves_none() {
        let margin = Margin {
            clock_rate_per_mille: 2_000,
            notice: Duration::from_secs(1),
        };
        assert_eq!(valid_for(margin, 500), 0);
    }
}
