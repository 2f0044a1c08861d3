//! Clock that counts while the machine is suspended, and a timer for it.
//!
//! [`std::time::Instant`] does not advance while a laptop sleeps or a virtual machine is frozen; the clocks of the cluster do. A client
//! that used it would assume after waking up that hardly any time has passed. This file does not know sessions.

use std::io;
use std::ops::{Add, Sub};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId as TimerClock, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::time::{ClockId, clock_gettime};
use tokio::io::unix::AsyncFd;

#[cfg(not(target_os = "linux"))]
compile_error!(
    "lock-client needs a clock and a timer that count suspend (CLOCK_BOOTTIME, timerfd): Linux has them"
);

/// Moment on `CLOCK_BOOTTIME`: the time since the machine was started, with the time that it was suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BootInstant(Duration);

impl BootInstant {
    /// Returns the current moment.
    pub(crate) fn now() -> Self {
        let now = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("every Linux since 2.6.39 has this clock");
        Self(now.into())
    }

    /// Returns whether the moment is in the past.
    pub(crate) fn has_passed(self) -> bool {
        Self::now() >= self
    }
}

impl Add<Duration> for BootInstant {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }
}

impl Sub<BootInstant> for BootInstant {
    type Output = Duration;

    /// Returns the time between two moments; zero if `earlier` is the later one.
    fn sub(self, earlier: BootInstant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Timer that wakes one task at a [`BootInstant`]. Timers of tokio use `CLOCK_MONOTONIC`, and would be late by the time that the
/// machine was suspended.
#[derive(Debug)]
pub(crate) struct BootTimer(AsyncFd<Descriptor>);

/// Timer descriptor whose readiness tokio can wait for.
#[derive(Debug)]
struct Descriptor(TimerFd);

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl BootTimer {
    /// Creates a timer of the current runtime. It costs a file descriptor.
    #[expect(
        deprecated,
        reason = "its successor is an unsafe function, for types that do not own the descriptor they name; this one does"
    )]
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(TimerClock::CLOCK_BOOTTIME, flags)?;
        Ok(Self(AsyncFd::new(Descriptor(timer))?))
    }

    /// Waits until `at`. Cancel safe.
    pub(crate) async fn until(&self, at: BootInstant) -> io::Result<()> {
        // Zero disarms a timer.
        let at = at.0.max(Duration::from_nanos(1));
        let expiration = Expiration::OneShot(TimeSpec::from_duration(at));
        self.0
            .get_ref()
            .0
            .set(expiration, TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
        loop {
            let mut ready = self.0.readable().await?;
            // An expiration of an earlier call leaves readiness behind, but nothing to read.
            if let Ok(expired) = ready.try_io(|timer| Ok(timer.get_ref().0.wait()?)) {
                return expired;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The clocks differ only on a machine that was suspended, or in a time namespace (`unshare --time --boottime 100000`).
    #[tokio::test]
    async fn both_count_the_time_since_the_machine_was_started() {
        let uptime = || -> f64 {
            let text = std::fs::read_to_string("/proc/uptime").unwrap();
            text.split(' ').next().unwrap().parse().unwrap()
        };
        // The file has hundredths of a second.
        let before = uptime() - 0.01;
        let now = BootInstant::now().0.as_secs_f64();
        assert!((before..=uptime() + 0.01).contains(&now), "{before} {now}");
        let timer = BootTimer::new().unwrap();
        let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", timer.0.as_raw_fd())).unwrap();
        let clock = about.lines().find_map(|line| line.strip_prefix("clockid: "));
        assert_eq!(clock, Some("7"), "it is not CLOCK_BOOTTIME: {about}");
    }

    #[tokio::test]
    async fn a_timer_wakes_not_before_its_moment_and_can_be_set_anew() {
        let timer = BootTimer::new().unwrap();
        let begin = BootInstant::now();
        // Dropped before its moment, and set to a later one.
        let soon = begin + Duration::from_millis(5);
        assert!(
            tokio::time::timeout(
                Duration::from_millis(1),
                timer.until(begin + Duration::from_secs(60))
            )
            .await
            .is_err()
        );
        timer.until(soon).await.unwrap();
        assert!(soon.has_passed());
        // A moment in the past does not wait.
        timer.until(begin).await.unwrap();
        assert!(BootInstant::now() - begin >= Duration::from_millis(5));
    }
}
