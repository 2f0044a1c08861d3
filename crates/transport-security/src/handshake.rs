//! Handshakes that are begun: each has a deadline, and there is an end to how many there are.
//!
//! Whoever opens connections and says nothing holds a place until its deadline. If the place stayed its own, a thousand such
//! connections every ten seconds would keep everybody else out. So when all places are taken the oldest handshake gives way:
//! an honest one is over within a few round trips, and was never the oldest of a thousand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::error::HandshakeError;

/// How much handshakes may cost a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandshakeBounds {
    /// How long one may take.
    pub timeout: Duration,
    /// How many may be begun and not finished; one more, and the oldest gives way.
    pub at_once: usize,
}

impl Default for HandshakeBounds {
    fn default() -> Self {
        Self {
            // Two round trips around the world, with lost packets in between; ten times what an honest client takes.
            timeout: Duration::from_secs(10),
            // Some 20 kB each. More than a whole fleet that comes back at once keeps waiting on a small machine.
            at_once: 1024,
        }
    }
}

/// All handshakes that are begun at one listener, of whatever kind: where no TLS is spoken, callers have to say who they are all
/// the same.
#[derive(Debug)]
pub struct Crowd {
    bounds: HandshakeBounds,
    begun: Mutex<Begun>,
}

#[derive(Debug, Default)]
struct Begun {
    next: u64,
    by_age: BTreeMap<u64, CancellationToken>,
}

/// The place of one handshake; free again when this is dropped.
struct Place {
    crowd: Arc<Crowd>,
    number: u64,
    gives_way: CancellationToken,
}

impl Crowd {
    /// None yet.
    pub fn new(bounds: HandshakeBounds) -> Arc<Self> {
        Arc::new(Self {
            bounds,
            begun: Mutex::default(),
        })
    }

    /// Carries out a handshake within the bounds.
    pub(crate) async fn carry_out<T>(
        self: &Arc<Self>,
        handshake: impl Future<Output = Result<T, HandshakeError>>,
    ) -> Result<T, HandshakeError> {
        self.bound(handshake).await.flatten()
    }

    /// Waits for a handshake within the bounds, whatever comes of it.
    pub async fn bound<T>(self: &Arc<Self>, handshake: impl Future<Output = T>) -> Result<T, HandshakeError> {
        let place = self.enter();
        tokio::select! {
            biased;
            () = place.gives_way.cancelled() => Err(HandshakeError::Crowded),
            done = tokio::time::timeout(self.bounds.timeout, handshake) => {
                done.map_err(|_| HandshakeError::TimedOut)
            }
        }
    }

    fn enter(self: &Arc<Self>) -> Place {
        let mut begun = self.begun.lock();
        while begun.by_age.len() >= self.bounds.at_once.max(1) {
            let (_, oldest) = begun.by_age.pop_first().expect("there is one at least");
            oldest.cancel();
        }
        let number = begun.next;
        begun.next += 1;
        let gives_way = CancellationToken::new();
        begun.by_age.insert(number, gives_way.clone());
        Place {
            crowd: self.clone(),
            number,
            gives_way,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.crowd.begun.lock().by_age.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_handshake_that_never_ends_is_cut_off() {
        let crowd = Crowd::new(HandshakeBounds::default());
        let begun = tokio::time::Instant::now();
        let cut = crowd.carry_out::<()>(pending()).await;
        assert!(matches!(cut, Err(HandshakeError::TimedOut)), "{cut:?}");
        assert_eq!(begun.elapsed(), HandshakeBounds::default().timeout);
        assert!(crowd.begun.lock().by_age.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_gives_way_and_the_newest_is_served() {
        let bounds = HandshakeBounds {
            at_once: 2,
            ..HandshakeBounds::default()
        };
        let crowd = Crowd::new(bounds);
        let hang = || {
            let crowd = crowd.clone();
            tokio::spawn(async move { crowd.carry_out::<()>(pending()).await })
        };
        let (first, second) = (hang(), hang());
        tokio::task::yield_now().await;
        let served = crowd.carry_out(ready(Ok(7))).await;
        assert!(matches!(served, Ok(7)), "{served:?}");
        let first = first.await.unwrap();
        assert!(matches!(first, Err(HandshakeError::Crowded)), "{first:?}");
        // Its place is free again, so the second one was not disturbed, and is not now.
        let third = hang();
        tokio::task::yield_now().await;
        assert!(!second.is_finished() && !third.is_finished());
        assert_eq!(crowd.begun.lock().by_age.len(), 2);
    }
}
