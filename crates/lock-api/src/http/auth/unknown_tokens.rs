//! Cache of tokens that the cluster does not know. This node may lag behind: it learns of a token created at another
//! node a moment later. So the node catches up before it rejects an unknown token. It does so for few callers at a
//! time, and only once for each token.

use std::collections::{HashSet, VecDeque};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use znode_store::TokenId;

/// Maximum number of callers for which this node catches up at the same time. Each asks the leader for a proof of
/// leadership, as heartbeats do, and must not displace them; callers with forged tokens could otherwise do so by
/// thousands.
const MAX_CONCURRENT_CATCH_UPS: usize = 16;

/// Number of remembered unknown tokens, the newest: those that clients still send after they were revoked. At 16 bytes
/// each, twice.
const MAX_REMEMBERED: usize = 4096;

/// Results for tokens that this node did not know.
#[derive(Debug)]
pub struct UnknownTokens {
    catch_up_permits: Semaphore,
    absent: Mutex<AbsentTokens>,
}

#[derive(Debug, Default)]
struct AbsentTokens {
    tokens: HashSet<TokenId>,
    order: VecDeque<TokenId>,
}

impl UnknownTokens {
    pub fn new() -> Self {
        Self {
            catch_up_permits: Semaphore::new(MAX_CONCURRENT_CATCH_UPS),
            absent: Mutex::default(),
        }
    }

    /// Returns whether a token was unknown to the whole cluster when this node last caught up for it. This is final:
    /// ids are random, so no caller can send one before it is created, and none is created twice.
    pub fn is_known_absent(&self, token: TokenId) -> bool {
        self.absent.lock().tokens.contains(&token)
    }

    /// Reserves one of the concurrent catch-ups of this node; `None`: all are in use.
    pub fn permit(&self) -> Option<SemaphorePermit<'_>> {
        self.catch_up_permits.try_acquire().ok()
    }

    /// Records that this node has caught up and still does not know the token.
    pub fn mark_absent(&self, token: TokenId) {
        let mut absent = self.absent.lock();
        if absent.tokens.insert(token) {
            absent.order.push_back(token);
        }
        if absent.order.len() > MAX_REMEMBERED
            && let Some(oldest) = absent.order.pop_front()
        {
            absent.tokens.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_tokens_are_remembered() {
        let unknown = UnknownTokens::new();
        let token = |number: usize| TokenId((number as u128).to_be_bytes());
        for number in 0..MAX_REMEMBERED + 10 {
            unknown.mark_absent(token(number));
            unknown.mark_absent(token(number));
        }
        assert!(!unknown.is_known_absent(token(9)));
        assert!(unknown.is_known_absent(token(10)));
        assert!(unknown.is_known_absent(token(MAX_REMEMBERED + 9)));
        assert_eq!(unknown.absent.lock().tokens.len(), MAX_REMEMBERED);
    }

    #[test]
    fn concurrent_catch_ups_are_bounded() {
        let unknown = UnknownTokens::new();
        let mut catch_up_permits: Vec<_> = (0..MAX_CONCURRENT_CATCH_UPS).map(|_| unknown.permit()).collect();
        assert!(catch_up_permits.iter().all(Option::is_some));
        assert!(unknown.permit().is_none());
        catch_up_permits.pop();
        assert!(unknown.permit().is_some());
    }
}
