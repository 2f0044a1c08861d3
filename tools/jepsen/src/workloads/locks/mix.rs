//! What clients of locks ask for: which lock, in which mode, how long they wait, how they leave.

use std::time::Duration;

use fastrand::Rng;
use lockgate_check::holds::Mode;
use serde_json::{Value, json};

/// Which modes the locks of a run are used in. Names of locks go by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// One holder at a time.
    Exclusive,
    /// Readers and writers.
    Shared,
    /// Permits: half of the locks have 2, half of them 5.
    Semaphore,
}

/// How many locks clients meet at.
pub const LOCKS: usize = 20;

/// This one is held for longer than a session lives, and meanwhile some of those who wait for it die.
const LONG_HELD: usize = LOCKS - 1;

/// It is wanted once in so many times: as many clients as that takes are busy with it for seconds.
const ONE_IN: u32 = 150;

/// Of the calls at a lock with readers so many in ten are writers'.
const WRITERS_IN_TEN: u32 = 3;

/// What one client wants next.
#[derive(Clone, Debug)]
pub struct Wish {
    pub lock: usize,
    pub mode: Mode,
    pub wait: Wait,
    pub hold: Duration,
    pub leave: Leave,
}

/// How long a client waits for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    Try,
    /// So long, which the server counts.
    For(Duration),
    /// Without end, but it hangs up after so long.
    UntilHungUp(Duration),
    /// Without end, and it dies meanwhile: its session falls silent, its connection stays.
    Dying,
}

/// How a client leaves a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// It releases it.
    Release,
    /// It dies: its session falls silent.
    Crash,
    /// It closes its session.
    Close,
}

impl Mix {
    /// How a lock is called.
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

    /// Draws a wish. Most holds are short, so that locks change hands often; few are long, so that faults meet them.
    /// If `again` is given, it is for this lock.
    pub fn draw(self, rng: &mut Rng, again: Option<usize>) -> Wish {
        if self == Self::Exclusive && again.is_none() && rng.u32(0..ONE_IN) == 0 {
            return Self::draw_long_held(rng);
        }
        let lock = again.unwrap_or_else(|| rng.usize(0..LONG_HELD));
        let ms = Duration::from_millis;
        Wish {
            lock,
            mode: self.mode(rng, lock),
            wait: match rng.u32(0..10) {
                0..2 => Wait::Try,
                2..4 => Wait::For(ms(rng.u64(20..200))),
                4 => Wait::UntilHungUp(ms(rng.u64(20..300))),
                _ => Wait::For(ms(rng.u64(500..1500))),
            },
            hold: match rng.u32(0..1000) {
                0..880 => ms(rng.u64(0..5)),
                880..996 => ms(rng.u64(5..50)),
                _ => ms(rng.u64(60..1500)),
            },
            leave: match rng.u32(0..1000) {
                // A lock stays shut for the rest of a session's time then.
                0 => Leave::Crash,
                1..4 => Leave::Close,
                _ => Leave::Release,
            },
        }
    }
}

impl Mix {
    fn draw_long_held(rng: &mut Rng) -> Wish {
        Wish {
            lock: LONG_HELD,
            mode: Mode::Exclusive,
            wait: match rng.bool() {
                true => Wait::Dying,
                false => Wait::For(Duration::from_millis(rng.u64(500..1500))),
            },
            hold: Duration::from_millis(rng.u64(2500..4000)),
            leave: Leave::Release,
        }
    }
}

/// How many permits a semaphore has.
pub fn limit(lock: usize) -> u32 {
    if lock.is_multiple_of(2) { 2 } else { 5 }
}

/// A mode as requests say it.
pub fn fields(mode: Mode) -> Value {
    match mode {
        Mode::Exclusive => json!({"mode": "exclusive"}),
        Mode::Shared => json!({"mode": "shared"}),
        Mode::Upgradeable => json!({"mode": "upgradeable"}),
        Mode::Permits { permits, limit } => json!({"mode": "semaphore", "permits": permits, "limit": limit}),
    }
}
