//! Pace of one kind of work, for each caller: a token bucket, which all connections of the caller share. Beyond it each answer waits for its
//! tokens, up to a maximum. So a caller that takes much of the processor, or has no right to any of it, leaves most of it to others.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::Caller;
use super::openings::Bucket;

/// Refused requests of one caller per second in the long run. At 36 µs each (401 over TLS) they take two hundredths of a core. A correct program has
/// few, and many programs with one wrong token still have an answer soon.
const REFUSALS_PER_SECOND: u32 = 500;

/// Refused requests of one caller at once, after a pause. They take less than 10 ms.
const REFUSALS_AT_ONCE: u32 = 200;

/// Processor time of one caller's long requests per second, in milliseconds: a tenth of a thread. On a machine with few cores, half of a thread
/// already delays the commits of others several times.
const LONG_REQUEST_MS_PER_SECOND: u32 = 100;

/// The same at once, after a pause.
const LONG_REQUEST_MS_AT_ONCE: u32 = 100;

/// Data of one caller's large writes per second, in KiB. A write of 1 MB takes 10 ms of processor time in the cluster, and the others wait for it.
const LARGE_WRITE_KIB_PER_SECOND: u32 = 4_096;

/// The same at once, after a pause: the largest transaction, and the write after it.
const LARGE_WRITE_KIB_AT_ONCE: u32 = 2_048;

/// Bounds of a pace, in its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaceBounds {
    /// Amount of one caller per second in the long run.
    pub per_second: u32,
    /// Amount of one caller at once, after a pause.
    pub at_once: u32,
}

impl PaceBounds {
    /// Bounds of refused requests.
    pub const OF_REFUSALS: Self = Self {
        per_second: REFUSALS_PER_SECOND,
        at_once: REFUSALS_AT_ONCE,
    };

    /// Bounds of long requests, in milliseconds of processor time.
    pub const OF_LONG_REQUESTS: Self = Self {
        per_second: LONG_REQUEST_MS_PER_SECOND,
        at_once: LONG_REQUEST_MS_AT_ONCE,
    };

    /// Bounds of large writes, in KiB of data.
    pub const OF_LARGE_WRITES: Self = Self {
        per_second: LARGE_WRITE_KIB_PER_SECOND,
        at_once: LARGE_WRITE_KIB_AT_ONCE,
    };
}

/// Maximum wait of a caller with an identity. Its tokens are its own, so only its own requests make it wait. A caller with many connections gets one
/// answer in this time for each of them at least.
const MAX_OWN_WAIT: Duration = Duration::from_secs(10);

/// Maximum wait of a caller without an identity. Such callers share the bucket of their address, so the wait of one of them is short, whatever the
/// others do.
const MAX_SHARED_WAIT: Duration = Duration::from_secs(1);

/// Maximum number of callers with a bucket. A caller whose bucket is full again loses it, and callers beyond the maximum do not wait.
const MAX_CALLERS: usize = 4_096;

/// Tokens that were taken, and the wait for them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Taken {
    /// Time until there are as many tokens.
    pub wait: Duration,
    /// Fewer than were asked for if the wait is the maximum.
    pub tokens: f64,
}

/// Token buckets of callers.
#[derive(Debug)]
pub struct CallerPace {
    bounds: PaceBounds,
    buckets: BTreeMap<Caller, Bucket>,
}

impl CallerPace {
    /// Returns a pace with full buckets.
    pub fn new(bounds: PaceBounds) -> Self {
        Self {
            bounds,
            buckets: BTreeMap::new(),
        }
    }

    /// Takes tokens, and returns how long the caller has to wait for them.
    pub fn take(&mut self, caller: Caller, tokens: f64, now: Instant) -> Taken {
        let PaceBounds { per_second, at_once } = self.bounds;
        let (per_second, burst) = (f64::from(per_second), f64::from(at_once));
        if self.buckets.len() >= MAX_CALLERS && !self.buckets.contains_key(&caller) {
            self.buckets.retain(|_, bucket| {
                bucket.fill(now, per_second, burst);
                bucket.tokens < burst
            });
            if self.buckets.len() >= MAX_CALLERS {
                return Taken::default();
            }
        }
        let max_wait = match caller {
            Caller::Principal(_) => MAX_OWN_WAIT,
            Caller::Network(_) => MAX_SHARED_WAIT,
        };
        let bucket = self
            .buckets
            .entry(caller)
            .or_insert_with(|| Bucket::full(burst, now));
        bucket.fill(now, per_second, burst);
        let most_owed = max_wait.as_secs_f64() * per_second;
        let left = (bucket.tokens - tokens).max(-most_owed);
        let tokens = bucket.tokens - left;
        bucket.tokens = left;
        let wait = Duration::from_secs_f64((-left).max(0.0) / per_second);
        Taken { wait, tokens }
    }

    /// Gives tokens back that were taken for nothing.
    pub fn give_back(&mut self, caller: &Caller, tokens: f64) {
        if let Some(bucket) = self.buckets.get_mut(caller) {
            bucket.tokens += tokens;
        }
    }
}

#[cfg(test)]
mod tests {
    use znode_store::Principal;

    use super::*;

    fn caller(number: u16) -> Caller {
        let [high, low] = number.to_be_bytes();
        Caller::Network(Some([192, 0, high, low].into()))
    }

    /// A pace of ten a second, and five at once.
    fn pace() -> CallerPace {
        CallerPace::new(PaceBounds {
            per_second: 10,
            at_once: 5,
        })
    }

    #[test]
    fn caller_waits_after_a_burst_and_others_do_not() {
        let (mut pace, now) = (pace(), Instant::now());
        for _ in 0..5 {
            assert_eq!(pace.take(caller(1), 1.0, now).wait, Duration::ZERO);
        }
        let token = Duration::from_millis(100);
        for number in 1..=3 {
            assert_eq!(pace.take(caller(1), 1.0, now).wait, number * token);
        }
        assert_eq!(pace.take(caller(2), 1.0, now).wait, Duration::ZERO);
        // Those three tokens are there by now, and the next one.
        assert_eq!(pace.take(caller(1), 1.0, now + 4 * token).wait, Duration::ZERO);
    }

    #[test]
    fn rate_of_many_connections_is_that_of_the_bucket_and_a_wait_is_bounded() {
        let (mut pace, began) = (pace(), Instant::now());
        // Each connection sends its next request when it has an answer.
        let mut connections = [began; 8];
        let end = began + Duration::from_secs(10);
        let mut answered = 0;
        while let Some(next) = connections.iter_mut().min().filter(|next| **next < end) {
            *next += pace.take(caller(1), 1.0, *next).wait;
            answered += 1;
        }
        assert!((100..=5 + 100 + 8).contains(&answered), "{answered}");
        for _ in 0..100 {
            assert!(pace.take(caller(2), 1.0, began).wait <= MAX_SHARED_WAIT);
        }
    }

    #[test]
    fn callers_that_share_a_bucket_wait_less_than_one_with_its_own() {
        let (mut pace, now) = (pace(), Instant::now());
        let certificate = Caller::Principal(Principal::Certificate("CN=worker".into()));
        for (caller, most) in [(caller(1), MAX_SHARED_WAIT), (certificate, MAX_OWN_WAIT)] {
            let waits: Vec<Duration> = (0..1_000)
                .map(|_| pace.take(caller.clone(), 1.0, now).wait)
                .collect();
            assert_eq!(waits.iter().max(), Some(&most), "{caller:?}");
        }
    }

    #[test]
    fn number_of_buckets_is_bounded() {
        let (mut pace, now) = (pace(), Instant::now());
        for number in 0..MAX_CALLERS + 10 {
            let number = u16::try_from(number).unwrap();
            assert_eq!(pace.take(caller(number), 1.0, now).wait, Duration::ZERO);
            assert!(pace.buckets.len() <= MAX_CALLERS);
        }
        pace.take(caller(u16::MAX), 1.0, now + Duration::from_secs(1));
        assert_eq!(pace.buckets.len(), 1, "those of the others are full again");
    }
}
