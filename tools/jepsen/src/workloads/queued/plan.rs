//! Random choices of the clients in the queues: which lock, how long they hold, and how they leave.

use std::time::Duration;

use fastrand::Rng;

/// Number of locks for which clients compete.
pub const LOCKS: usize = 18;

/// Lock that is held for longer than a lease lives, while some of its waiters leave or become silent; and the
/// number of clients that use only this lock.
const LONG_HELD: usize = LOCKS - 1;
const LONG_HELD_CLIENTS: usize = 6;

/// Next request of a client.
#[derive(Clone, Debug)]
pub struct Plan {
    pub lock: usize,
    /// Time after which the first connection is cut.
    pub cut: Option<Duration>,
    pub wait: WaitEnd,
    pub hold: Duration,
    /// The client becomes silent instead of releasing the lock.
    pub is_silent_at_end: bool,
}

/// End of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// Waits for the grant.
    Grant,
    /// Leaves the queue after this time.
    GiveUp(Duration),
    /// Renews no more from the beginning, and watches how the place ends.
    Silence,
}

/// Returns the name of a lock.
pub fn lock_name(lock: usize) -> String {
    format!("jepsen/queued/{lock}")
}

impl Plan {
    /// Draws a plan of the client with this number.
    pub fn draw(rng: &mut Rng, client: usize) -> Self {
        let ms = Duration::from_millis;
        let is_long = client < LONG_HELD_CLIENTS;
        Self {
            lock: match is_long {
                true => LONG_HELD,
                false => rng.usize(0..LONG_HELD),
            },
            cut: (rng.u32(0..10) == 0).then(|| ms(rng.u64(1..50))),
            wait: match (is_long, rng.u32(0..10)) {
                (true, 0..3) => WaitEnd::Silence,
                (true, 3..5) => WaitEnd::GiveUp(ms(rng.u64(100..5000))),
                (false, 0) => WaitEnd::GiveUp(ms(rng.u64(1..60))),
                _ => WaitEnd::Grant,
            },
            hold: match (is_long, rng.u32(0..1000)) {
                (true, _) => ms(rng.u64(2500..4500)),
                (false, 0..920) => ms(rng.u64(0..5)),
                (false, 920..995) => ms(rng.u64(5..100)),
                (false, _) => ms(rng.u64(500..3000)),
            },
            is_silent_at_end: rng.u32(0..300) == 0,
        }
    }
}
