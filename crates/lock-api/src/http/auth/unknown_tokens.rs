//! Tokens that this node does not know. It may be behind: a token that was made at another node a moment ago is known here a
//! moment later. So the node catches up before it refuses one, but neither often at once nor twice for the same.

use std::collections::{HashSet, VecDeque};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use znode_store::TokenId;

/// Maximum number of callers for which this node catches up at the same time. Each asks the leader for a proof of leadership, as
/// heartbeats do, and must not displace them; callers with forged tokens could otherwise do so by thousands.
const CATCHING_UP_AT_ONCE: usize = 16;

/// Number of remembered unknown tokens, the newest: those that clients still send after they were revoked. At 16 bytes
/// each, twice.
const REMEMBERED: usize = 4096;

/// Results for tokens that this node did not know.
#[derive(Debug)]
pub struct UnknownTokens {
    places: Semaphore,
    found: Mutex<Found>,
}

#[derive(Debug, Default)]
struct Found {
    tokens: HashSet<TokenId>,
    order: VecDeque<TokenId>,
}

impl UnknownTokens {
    pub fn new() -> Self {
        Self {
            places: Semaphore::new(CATCHING_UP_AT_ONCE),
            found: Mutex::default(),
        }
    }

    /// Returns whether a token was unknown to the whole cluster when this node last caught up for it. This is final: ids are
    /// random, so no caller can send one before it is created, and none is created twice.
    pub fn is_known_to_be_none(&self, token: TokenId) -> bool {
        self.found.lock().tokens.contains(&token)
    }

    /// Reserves one of the concurrent catch-ups of this node; `None`: all are in use.
    pub fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.places.try_acquire().ok()
    }

    /// The node has caught up, and does not know the token.
    pub fn is_none(&self, token: TokenId) {
        let mut found = self.found.lock();
        if found.tokens.insert(token) {
            found.order.push_back(token);
        }
        if found.order.len() > REMEMBERED
            && let Some(oldest) = found.order.pop_front()
        {
            found.tokens.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_remembered_and_no_more() {
        let unknown = UnknownTokens::new();
        let token = |number: usize| TokenId((number as u128).to_be_bytes());
        for number in 0..REMEMBERED + 10 {
            unknown.is_none(token(number));
            unknown.is_none(token(number));
        }
        assert!(!unknown.is_known_to_be_none(token(9)));
        assert!(unknown.is_known_to_be_none(token(10)));
        assert!(unknown.is_known_to_be_none(token(REMEMBERED + 9)));
        assert_eq!(unknown.found.lock().tokens.len(), REMEMBERED);
    }

    #[test]
    fn concurrent_catch_ups_are_bounded() {
        let unknown = UnknownTokens::new();
        let mut places: Vec<_> = (0..CATCHING_UP_AT_ONCE).map(|_| unknown.place()).collect();
        assert!(places.iter().all(Option::is_some));
        assert!(unknown.place().is_none());
        places.pop();
        assert!(unknown.place().is_some());
    }
}
