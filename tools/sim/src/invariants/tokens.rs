//! Tokens strictly increasing: of two holds of a lock the one that began at a later position has the larger token. Those who
//! are let in by one command get along with each other, and may have the same one. (Of holds that get along nobody promises
//! an order to clients; it holds because queues are in order of arrival.)

use std::collections::BTreeMap;

use znode_store::{Hold, LockName, Zxid};

use super::Check;

/// The token of each lock's last hold, and where that began.
#[derive(Default)]
pub struct Tokens {
    last: BTreeMap<LockName, (Zxid, Zxid)>,
}

impl Tokens {
    /// A hold began at a position.
    pub fn began(&mut self, hold: &Hold, at: Zxid) -> Check {
        self.given(&hold.lock, hold.fencing_token, at)
    }

    fn given(&mut self, lock: &LockName, token: Zxid, at: Zxid) -> Check {
        match self.last.insert(lock.clone(), (token, at)) {
            _ if token > at => Err(format!(
                "{lock} was given with the token {token} at {at}, before it"
            )),
            Some((before, then)) if then == at && before <= token => Ok(()),
            Some((before, then)) if before >= token => Err(format!(
                "{lock} was given with the token {token} at {at}, after {before} at {then}"
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_goes_back_is_noticed() {
        let [a, b] = ["a", "b"].map(|name| LockName::parse(name).expect("a name"));
        let mut tokens = Tokens::default();
        assert_eq!(tokens.given(&a, Zxid(5), Zxid(6)), Ok(()));
        assert_eq!(tokens.given(&b, Zxid(4), Zxid(7)), Ok(()));
        assert_eq!(tokens.given(&a, Zxid(8), Zxid(8)), Ok(()));
        assert_eq!(
            tokens.given(&a, Zxid(8), Zxid(8)),
            Ok(()),
            "let in by the same command"
        );
        assert!(tokens.given(&a, Zxid(8), Zxid(9)).is_err());
        assert!(tokens.given(&b, Zxid(10), Zxid(9)).is_err(), "of the future");
    }
}
