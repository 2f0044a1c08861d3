//! Until when a session is surely alive. Pure: no clock is read here.

use std::time::Duration;

use crate::clock::BootInstant;

/// What is taken off a session's time for what may differ between two machines.
///
/// The cluster counts a session's time from when it hears of a heartbeat, on its own clock. The client counts from when
/// it *sent* it, which is earlier; so the way there and back is on the safe side already. What remains: a clock that runs
/// slower than the cluster's, and the time between noticing that the end is near and having stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Margin {
    /// How many thousandths the local clock may run slower than those of the servers.
    pub clock_rate_per_mille: u32,
    /// How long before the end the loss is told, so that whoever hears of it can still stop in time.
    pub notice: Duration,
}

impl Default for Margin {
    /// One per cent, a hundred times what a quartz is off, and 100 ms.
    fn default() -> Self {
        Self {
            clock_rate_per_mille: 10,
            notice: Duration::from_millis(100),
        }
    }
}

impl Margin {
    /// Until when a session is surely alive whose heartbeat was sent at `sent` and is confirmed for `ttl`.
    pub(crate) fn valid_until(self, sent: BootInstant, ttl: Duration) -> BootInstant {
        let drift = ttl.saturating_mul(self.clock_rate_per_mille) / 1000;
        sent + ttl.saturating_sub(drift).saturating_sub(self.notice)
    }
}

/// From when on it is doubtful whether a session will be alive much longer: heartbeats are sent every third of its time,
/// so by now one has failed.
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
