//! Rate limit of session openings at this node: one token bucket for the node, and one for each client address. Each session costs the whole
//! cluster memory, a slot below the limit of sessions, and an expiry. A single session is cheap; a flood of them is not.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::request_error::OpenSessionError;
use raft_node::Unavailable;

/// Maximum number of addresses with a bucket of their own. An address without recent openings loses its bucket. Addresses beyond the maximum
/// are limited by the node's bucket only.
const MAX_ADDRESSES: usize = 4_096;

/// Settings of the rate limit of session openings at one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpeningBounds {
    /// Sessions per second in the long run.
    pub per_second: u32,
    /// Sessions at once, after a pause.
    pub burst: u32,
    /// Divisor of both bounds that gives the share of one address. With 1, a single address may use the whole rate.
    pub share: u32,
}

impl Default for OpeningBounds {
    fn default() -> Self {
        Self {
            // Each opening is a commit. This rate leaves most of a small machine's commits for locks.
            per_second: 1_000,
            // Enough for ten thousand clients of one address that lose their node and reconnect here at once: their share is half.
            burst: 20_000,
            share: 2,
        }
    }
}

/// Rejection of a session opening by the rate limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooFast {
    /// The caller's address has used up its share. The duration is the time until the next token.
    OfAddress(Duration),
    /// All addresses together have used up the node's rate. The duration is the time until the next token.
    OfAll(Duration),
}

impl From<TooFast> for OpenSessionError {
    fn from(too_fast: TooFast) -> Self {
        match too_fast {
            TooFast::OfAddress(retry_after) => Self::TooMany { retry_after },
            TooFast::OfAll(retry_after) => Unavailable {
                retry_after,
                ..Unavailable::new("too many sessions are opened at this node")
            }
            .into(),
        }
    }
}

/// Token buckets of session openings: the node's, and those of the addresses.
#[derive(Debug)]
pub struct Openings {
    bounds: OpeningBounds,
    all: Bucket,
    addresses: HashMap<Box<str>, Bucket>,
}

/// Token bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    pub(super) tokens: f64,
    at: Instant,
}

impl Bucket {
    /// Returns a bucket with all tokens of a burst.
    pub(super) fn full(burst: f64, now: Instant) -> Self {
        Self {
            tokens: burst,
            at: now,
        }
    }

    /// Returns the time since tokens were added.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.at)
    }

    /// Adds the tokens for the time since the last call.
    pub(super) fn fill(&mut self, now: Instant, per_second: f64, burst: f64) {
        let passed = self.age(now).as_secs_f64();
        self.tokens = (self.tokens + passed * per_second).min(burst);
        self.at = now;
    }

    fn missing(&self, per_second: f64) -> Option<Duration> {
        (self.tokens < 1.0).then(|| Duration::from_secs_f64((1.0 - self.tokens) / per_second))
    }
}

impl Openings {
    /// Returns a rate limit with full buckets.
    pub fn new(bounds: OpeningBounds, now: Instant) -> Self {
        Self {
            bounds,
            all: Bucket::full(f64::from(bounds.burst), now),
            addresses: HashMap::new(),
        }
    }

    /// Takes a token for a session that is opened from `address` (with its port or without).
    pub fn take(&mut self, now: Instant, address: &str) -> Result<(), TooFast> {
        let (rate, burst) = (f64::from(self.bounds.per_second), f64::from(self.bounds.burst));
        let share = f64::from(self.bounds.share.max(1));
        let (own_rate, own_burst) = (rate / share, (burst / share).max(1.0));
        self.all.fill(now, rate, burst);
        let host = host(address);
        if !self.addresses.contains_key(host) {
            if self.addresses.len() >= MAX_ADDRESSES {
                self.forget_idle_addresses(now, own_rate, own_burst);
            }
            if self.addresses.len() < MAX_ADDRESSES {
                self.addresses.insert(host.into(), Bucket::full(own_burst, now));
            }
        }
        let own = self.addresses.get_mut(host);
        if let Some(own) = own {
            own.fill(now, own_rate, own_burst);
            if let Some(missing) = own.missing(own_rate) {
                return Err(TooFast::OfAddress(missing));
            }
            // An address that finds the node's bucket empty keeps its own token.
            if let Some(missing) = self.all.missing(rate) {
                return Err(TooFast::OfAll(missing));
            }
            own.tokens -= 1.0;
        } else if let Some(missing) = self.all.missing(rate) {
            return Err(TooFast::OfAll(missing));
        }
        self.all.tokens -= 1.0;
        Ok(())
    }

    fn forget_idle_addresses(&mut self, now: Instant, rate: f64, burst: f64) {
        self.addresses.retain(|_, bucket| {
            bucket.fill(now, rate, burst);
            bucket.tokens < burst
        });
    }
}

/// Returns an address without its port.
fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: OpeningBounds = OpeningBounds {
        per_second: 100,
        burst: 10,
        share: 2,
    };

    fn opened(openings: &mut Openings, now: Instant, address: &str, tries: usize) -> usize {
        (0..tries).filter(|_| openings.take(now, address).is_ok()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_gets_its_share_and_leaves_the_rest_to_others() {
        let mut now = Instant::now();
        let mut openings = Openings::new(BOUNDS, now);
        assert_eq!(opened(&mut openings, now, "192.0.2.1:1", 100), 5);
        let refused = openings.take(now, "192.0.2.1:2");
        assert_eq!(
            refused,
            Err(TooFast::OfAddress(Duration::from_millis(20))),
            "the port does not matter"
        );
        assert_eq!(opened(&mut openings, now, "192.0.2.2:1", 100), 5);
        let refused = openings.take(now, "192.0.2.3:1");
        assert_eq!(refused, Err(TooFast::OfAll(Duration::from_millis(10))));
        now += Duration::from_millis(100);
        assert_eq!(opened(&mut openings, now, "192.0.2.1:1", 100), 5);
        assert_eq!(opened(&mut openings, now, "[2001:db8::1]:9", 100), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_addresses_are_remembered_than_there_is_room_for() {
        let now = Instant::now();
        let bounds = OpeningBounds {
            per_second: 1_000_000,
            burst: 1_000_000,
            share: 2,
        };
        let mut openings = Openings::new(bounds, now);
        for number in 0..MAX_ADDRESSES + 10 {
            let taken = openings.take(now, &format!("host-{number}:1"));
            assert_eq!(taken, Ok(()));
        }
        assert_eq!(openings.addresses.len(), MAX_ADDRESSES);
        let later = now + Duration::from_secs(1);
        assert_eq!(openings.take(later, "another:1"), Ok(()));
        assert_eq!(openings.addresses.len(), 1, "the other addresses are idle");
    }
}
