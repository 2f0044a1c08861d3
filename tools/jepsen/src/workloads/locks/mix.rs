//! Random choices of the clients of locks: which lock, in which mode, how long they wait, and how they end
//! their hold.

use std::time::Duration;

use fastrand::Rng;
use lockgate_check::holds::Mode;
use serde_json::{Value, json};

/// Modes in which the locks of a run are used. Part of the locks' names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// One holder at a time.
    Exclusive,
    /// Readers and writers.
    Shared,
    /// Permits: half of the locks have 2, half of them 5.
    Semaphore,
}

/// Number of locks for which clients compete.
pub const LOCKS: usize = 20;

/// Lock that is held for longer than a session's TTL, while some of its waiters crash.
const LONG_HELD: usize = LOCKS - 1;

/// One in this number of requests is for the long-held lock; as many clients as that takes are busy with it
/// for seconds.
const ONE_IN: u32 = 150;

/// Writers among ten calls to a lock with readers.
const WRITERS_IN_TEN: u32 = 3;

/// Next request of a client.
#[derive(Clone, Debug)]
pub struct LockRequest {
    pub lock: usize,
    pub mode: Mode,
    pub wait: Wait,
    pub hold: Duration,
    pub end: HoldEnd,
}

/// Wait of a client for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Does not wait.
    Try,
    /// Waits up to this time, which the server measures.
    For(Duration),
    /// Waits without a limit, but closes the connection after this time.
    UntilDisconnect(Duration),
    /// Waits without a limit, and crashes meanwhile: its heartbeats stop, its connection stays open.
    Crashing,
}

/// End of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldEnd {
    /// Releases the lock.
    Release,
    /// Crashes: its heartbeats stop.
    Crash,
    /// Closes its session.
    Close,
}

impl Mix {
    /// Returns the name of a lock.
    pub fn lock_name(self, lock: usize) -> String {
        let kind = match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::Semaphore => "semaphore",
        };
        format!("jepsen/{kind}/{lock}")
    }

    fn mode(self, rng: &mut Rng, lock: usize) -> Mode {
        match self {
            Self::Exclusive => Mode::Exclusive,
            Self::Shared if rng.u32(0..10) < WRITERS_IN_TEN => Mode::Exclusive,
            Self::Shared => Mode::Shared,
            Self::Semaphore => {
                let limit = limit(lock);
                Mode::Permits {
                    permits: rng.u32(1..=limit.min(3)),
                    limit,
                }
            }
        }
    }

    /// Draws a request. Most holds are short, so that locks change hands often; few are long, so that faults
    /// hit them. If `again` is given, the request is for this lock.
    pub fn draw(self, rng: &mut Rng, again: Option<usize>) -> LockRequest {
        if self == Self::Exclusive && again.is_none() && rng.u32(0..ONE_IN) == 0 {
            return Self::draw_long_held(rng);
        }
        let lock = again.unwrap_or_else(|| rng.usize(0..LONG_HELD));
        let ms = Duration::from_millis;
        LockRequest {
            lock,
            mode: self.mode(rng, lock),
            wait: match rng.u32(0..10) {
                0..2 => Wait::Try,
                2..4 => Wait::For(ms(rng.u64(20..200))),
                4 => Wait::UntilDisconnect(ms(rng.u64(20..300))),
                _ => Wait::For(ms(rng.u64(500..1500))),
            },
            hold: match rng.u32(0..1000) {
                0..880 => ms(rng.u64(0..5)),
                880..996 => ms(rng.u64(5..50)),
                _ => ms(rng.u64(60..1500)),
            },
            end: match rng.u32(0..1000) {
                // The lock then stays held for the rest of the session's TTL.
                0 => HoldEnd::Crash,
                1..4 => HoldEnd::Close,
                _ => HoldEnd::Release,
            },
        }
    }
}

impl Mix {
    fn draw_long_held(rng: &mut Rng) -> LockRequest {
        LockRequest {
            lock: LONG_HELD,
            mode: Mode::Exclusive,
            wait: match rng.bool() {
                true => Wait::Crashing,
                false => Wait::For(Duration::from_millis(rng.u64(500..1500))),
            },
            hold: Duration::from_millis(rng.u64(2500..4000)),
            end: HoldEnd::Release,
        }
    }
}

/// Returns the number of permits of a semaphore.
pub fn limit(lock: usize) -> u32 {
    if lock.is_multiple_of(2) { 2 } else { 5 }
}

/// Returns the fields of a request for a mode.
pub fn fields(mode: Mode) -> Value {
    match mode {
        Mode::Exclusive => json!({"mode": "exclusive"}),
        Mode::Shared => json!({"mode": "shared"}),
        Mode::Upgradeable => json!({"mode": "upgradeable"}),
        Mode::Permits { permits, limit } => json!({"mode": "semaphore", "permits": permits, "limit": limit}),
    }
}
