//! Random choices of the clients of leases: which lock, with which bounds, how long they wait and hold, and
//! how they end.

use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;

/// Number of locks for which clients compete.
pub const LOCKS: usize = 23;

/// Locks with a minimum time of each hold, and the clients that use only these: enough that some always wait.
const WITH_MIN_HOLD: Range<usize> = 18..20;
const MIN_HOLD_CLIENTS: Range<usize> = 0..6;

/// Locks with a maximum time of each hold, and the clients that use only these.
const WITH_MAX_HOLD: Range<usize> = 20..LOCKS;
const MAX_HOLD_CLIENTS: Range<usize> = 6..10;

/// Times to live that clients request; the first is the minimum of the server.
pub const TTLS_MS: [u64; 3] = [2000, 2500, 4000];

/// Longest of them.
pub const LONGEST_TTL: Duration = Duration::from_millis(4000);

/// Time by which clients try to exceed the maximum time of a hold: an election, and the time that a restarted
/// leader may count again.
const BEYOND_MAX_HOLD: Duration = Duration::from_secs(8);

/// Next lease of a client.
#[derive(Clone, Debug)]
pub struct Plan {
    pub lock: usize,
    pub ttl_ms: u64,
    pub wait: Wait,
    pub min_hold: Duration,
    pub max_hold: Option<Duration>,
    pub hold: Duration,
    pub end: HoldEnd,
}

/// Wait for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Tries once.
    Try,
    /// Waits up to this time, which the server measures.
    For(Duration),
    /// Waits up to a second, but closes the first connection after this time.
    UntilDisconnect(Duration),
}

/// End of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldEnd {
    /// Releases the lease.
    Release,
    /// Renews no more, and watches how the lease expires.
    Silence,
    /// Is paused for longer than the lease lives, and then writes to the register.
    Pause,
}

/// Returns the name of a lock.
pub fn lock_name(lock: usize) -> String {
    let kind = if WITH_MIN_HOLD.contains(&lock) {
        "min-hold"
    } else if WITH_MAX_HOLD.contains(&lock) {
        "max-hold"
    } else {
        "plain"
    };
    format!("jepsen/leases/{kind}-{lock}")
}

impl Plan {
    /// Draws a plan of the client with this number.
    pub fn draw(rng: &mut Rng, client: usize) -> Self {
        let ttl_ms = TTLS_MS[rng.usize(0..TTLS_MS.len())];
        if MIN_HOLD_CLIENTS.contains(&client) {
            Self::with_min_hold(rng, ttl_ms)
        } else if MAX_HOLD_CLIENTS.contains(&client) {
            Self::with_max_hold(rng, ttl_ms)
        } else {
            Self::plain(rng, ttl_ms)
        }
    }

    /// The holder releases its lock before the minimum time is over.
    fn with_min_hold(rng: &mut Rng, ttl_ms: u64) -> Self {
        Self {
            lock: rng.usize(WITH_MIN_HOLD),
            ttl_ms,
            wait: match rng.u32(0..4) {
                0 => Wait::Try,
                _ => Wait::For(ms(rng.u64(200..1500))),
            },
            min_hold: ms(rng.u64(150..500)),
            max_hold: None,
            hold: ms(rng.u64(0..20)),
            end: HoldEnd::Release,
        }
    }

    /// The holder renews its lease beyond the maximum time.
    fn with_max_hold(rng: &mut Rng, ttl_ms: u64) -> Self {
        let max_hold = ms(rng.u64(800..1800));
        Self {
            lock: rng.usize(WITH_MAX_HOLD),
            ttl_ms,
            wait: Wait::For(ms(rng.u64(50..1500))),
            min_hold: Duration::ZERO,
            max_hold: Some(max_hold),
            hold: max_hold + BEYOND_MAX_HOLD,
            end: HoldEnd::Release,
        }
    }

    /// Most holds are short, so that locks change hands often; few are long, so that faults hit them.
    fn plain(rng: &mut Rng, ttl_ms: u64) -> Self {
        Self {
            lock: rng.usize(0..WITH_MIN_HOLD.start),
            ttl_ms,
            wait: match rng.u32(0..10) {
                0..3 => Wait::Try,
                3 => Wait::UntilDisconnect(ms(rng.u64(5..200))),
                _ => Wait::For(ms(rng.u64(100..800))),
            },
            min_hold: Duration::ZERO,
            // A bound that no hold reaches.
            max_hold: (rng.u32(0..10) == 0).then(|| ms(20_000)),
            hold: match rng.u32(0..1000) {
                0..900 => ms(rng.u64(0..5)),
                900..995 => ms(rng.u64(5..60)),
                _ => ms(rng.u64(1500..6000)),
            },
            end: match rng.u32(0..1000) {
                0..3 => HoldEnd::Silence,
                3..5 => HoldEnd::Pause,
                _ => HoldEnd::Release,
            },
        }
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
