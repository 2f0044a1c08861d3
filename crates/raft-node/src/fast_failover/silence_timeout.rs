//! Silence of a leader after which a follower suspects it. Pure.

use std::time::Duration;

use fault_injection::planted::{self, Bug};
use tokio::time::Instant;

use crate::raft_config::RaftTiming;

/// Silence timeout as a multiple of the widest recent pause: a pause of a busy machine is often followed by a
/// longer one.
const PAUSE_FACTOR: u32 = 3;

/// Maximum silence timeout, in longest election timeouts: however badly machines stall, a dead leader is
/// replaced after that time.
pub const MAX_SILENCE_INTERVALS: u32 = 5;

/// Minimum time for which a pause is remembered; the maximum is twice that. A busy machine stalls again
/// within minutes.
const PAUSE_MEMORY: Duration = Duration::from_secs(150);

/// Failure detector of a follower: the widest recent pauses between two messages of a live leader, and the
/// silence timeout that follows from them.
///
/// A pause has many causes: the leader's process or this one was not scheduled, a disk or the network
/// stalled. The cause, which the follower cannot know, does not matter: what happened once may happen again,
/// and is no reason for an election.
#[derive(Debug)]
pub struct SilenceTimeout {
    timing: RaftTiming,
    /// Widest pause since `since`.
    widest: Duration,
    /// Widest pause of the interval before.
    widest_before: Duration,
    since: Instant,
}

impl SilenceTimeout {
    /// Creates the detector of a node that has seen no pause.
    pub fn new(timing: RaftTiming, now: Instant) -> Self {
        Self {
            timing,
            widest: Duration::ZERO,
            widest_before: Duration::ZERO,
            since: now,
        }
    }

    /// Records a pause between two messages of the leader.
    pub fn note(&mut self, pause: Duration, now: Instant) {
        // Most pauses are short and change nothing.
        let matters = pause.saturating_mul(PAUSE_FACTOR) > self.timing.election_max;
        if matters && !planted::is(Bug::FixedPatience) {
            self.forget(now);
            self.widest = self.widest.max(pause);
        }
    }

    /// Returns the silence after which this node asks the other voters: the longest election timeout, or more
    /// after pauses.
    pub fn silence(&mut self, now: Instant) -> Duration {
        self.forget(now);
        let widest = self.widest.max(self.widest_before).saturating_mul(PAUSE_FACTOR);
        let usual = self.timing.election_max;
        widest.clamp(usual, usual.saturating_mul(MAX_SILENCE_INTERVALS))
    }

    /// Returns the silence after which this node agrees with a voter that asks.
    pub fn agreement(&mut self, now: Instant) -> Duration {
        self.silence(now).saturating_sub(self.final_part())
    }

    /// Returns the final part of the silence, which is waited for in steps of [`super::CHECK_INTERVAL`].
    pub fn final_part(&self) -> Duration {
        self.timing.election_max.saturating_sub(self.timing.election_min)
    }

    fn forget(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.since);
        if passed >= PAUSE_MEMORY {
            self.widest_before = match passed < 2 * PAUSE_MEMORY {
                true => self.widest,
                false => Duration::ZERO,
            };
            self.widest = Duration::ZERO;
            self.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn wait_grows_with_the_widest_pause_and_has_a_limit() {
        let timing = RaftTiming::default();
        let now = Instant::now();
        for (pause, silence, agreement) in [
            (0, 600, 300),
            // Heartbeats of a quiet machine.
            (60, 600, 300),
            (200, 600, 300),
            (250, 750, 450),
            (500, 1_500, 1_200),
            (5_000, 3_000, 2_700),
        ] {
            let mut timeout = SilenceTimeout::new(timing.clone(), now);
            timeout.note(pause * MS, now);
            timeout.note(10 * MS, now);
            assert_eq!(timeout.silence(now), silence * MS, "{pause}");
            assert_eq!(timeout.agreement(now), agreement * MS, "{pause}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_are_forgotten_after_some_minutes() {
        let now = Instant::now();
        let mut timeout = SilenceTimeout::new(RaftTiming::default(), now);
        timeout.note(500 * MS, now + PAUSE_MEMORY - MS);
        timeout.note(400 * MS, now + PAUSE_MEMORY + MS);
        assert_eq!(timeout.silence(now + 2 * PAUSE_MEMORY), 1_500 * MS);
        assert_eq!(timeout.silence(now + 2 * PAUSE_MEMORY + MS), 1_200 * MS);
        assert_eq!(timeout.silence(now + 4 * PAUSE_MEMORY), 600 * MS);

        let mut timeout = SilenceTimeout::new(RaftTiming::default(), now);
        timeout.note(500 * MS, now);
        assert_eq!(timeout.silence(now + 2 * PAUSE_MEMORY), 600 * MS);
    }
}
