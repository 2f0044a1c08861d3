//! Limits for handshakes in progress: a timeout for each, and a maximum number.
//!
//! A caller that opens connections and sends nothing occupies a slot until the timeout. If slots were kept until
//! then, a thousand such connections every ten seconds would lock everybody else out. Therefore the oldest
//! handshake is cancelled when all slots are taken: a well-behaved client finishes within a few round trips, and
//! is never the oldest of a thousand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::error::HandshakeError;

/// Limits for handshakes in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandshakeLimits {
    /// Maximum duration of one handshake.
    pub timeout: Duration,
    /// Maximum number of handshakes in progress; one more cancels the oldest.
    pub at_once: usize,
}

impl Default for HandshakeLimits {
    fn default() -> Self {
        Self {
            // Two round trips around the world, with lost packets in between: ten times what a well-behaved
            // client takes.
            timeout: Duration::from_secs(10),
            // About 20 kB each. It exceeds the number that is in progress at a small machine when a whole
            // fleet reconnects at once.
            at_once: 1024,
        }
    }
}

/// Limiter for the handshakes in progress at one listener. It also covers handshakes of other protocols:
/// where a listener does not use TLS, callers still have to identify themselves.
#[derive(Debug)]
pub struct HandshakeLimiter {
    limits: HandshakeLimits,
    pending: Mutex<Pending>,
}

#[derive(Debug, Default)]
struct Pending {
    next: u64,
    by_age: BTreeMap<u64, CancellationToken>,
}

/// Slot of one handshake; dropping it frees the slot.
struct PendingHandshake {
    limiter: Arc<HandshakeLimiter>,
    number: u64,
    cancel: CancellationToken,
}

impl HandshakeLimiter {
    /// Creates a limiter without handshakes.
    pub fn new(limits: HandshakeLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            pending: Mutex::default(),
        })
    }

    /// Runs a handshake within the limits.
    pub(crate) async fn run<T>(
        self: &Arc<Self>,
        handshake: impl Future<Output = Result<T, HandshakeError>>,
    ) -> Result<T, HandshakeError> {
        self.limit(handshake).await.flatten()
    }

    /// Awaits `handshake` within the limits and returns its output.
    pub async fn limit<T>(self: &Arc<Self>, handshake: impl Future<Output = T>) -> Result<T, HandshakeError> {
        let slot = self.enter();
        tokio::select! {
            biased;
            () = slot.cancel.cancelled() => Err(HandshakeError::Crowded),
            done = tokio::time::timeout(self.limits.timeout, handshake) => {
                done.map_err(|_| HandshakeError::TimedOut)
            }
        }
    }

    fn enter(self: &Arc<Self>) -> PendingHandshake {
        let mut pending = self.pending.lock();
        while pending.by_age.len() >= self.limits.at_once.max(1) {
            let (_, oldest) = pending.by_age.pop_first().expect("the map is not empty");
            oldest.cancel();
        }
        let number = pending.next;
        pending.next += 1;
        let cancel = CancellationToken::new();
        pending.by_age.insert(number, cancel.clone());
        PendingHandshake {
            limiter: self.clone(),
            number,
            cancel,
        }
    }
}

impl Drop for PendingHandshake {
    fn drop(&mut self) {
        self.limiter.pending.lock().by_age.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn stalled_handshake_times_out() {
        let limiter = HandshakeLimiter::new(HandshakeLimits::default());
        let started = tokio::time::Instant::now();
        let cut = limiter.run::<()>(pending()).await;
        assert!(matches!(cut, Err(HandshakeError::TimedOut)), "{cut:?}");
        assert_eq!(started.elapsed(), HandshakeLimits::default().timeout);
        assert!(limiter.pending.lock().by_age.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn oldest_handshake_is_cancelled_for_the_newest() {
        let limits = HandshakeLimits {
            at_once: 2,
            ..HandshakeLimits::default()
        };
        let limiter = HandshakeLimiter::new(limits);
        let hang = || {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.run::<()>(pending()).await })
        };
        let (first, second) = (hang(), hang());
        tokio::task::yield_now().await;
        let served = limiter.run(ready(Ok(7))).await;
        assert!(matches!(served, Ok(7)), "{served:?}");
        let first = first.await.unwrap();
        assert!(matches!(first, Err(HandshakeError::Crowded)), "{first:?}");
        // The slot of the first one is free again, so neither the second one nor the third is cancelled.
        let third = hang();
        tokio::task::yield_now().await;
        assert!(!second.is_finished() && !third.is_finished());
        assert_eq!(limiter.pending.lock().by_age.len(), 2);
    }
}
