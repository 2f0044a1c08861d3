//! Increasing tokens: of two holds of a lock the one that began at a later position has the larger token.
//! Contenders that are granted by one command are compatible, and may share a token. (Clients are promised no
//! order among compatible holds; it holds because queues are in order of arrival.)

use std::collections::BTreeMap;

use znode_store::{Hold, LockName, Zxid};

use super::Check;

/// Checker with the token of each lock's last hold, and the position at which that began.
#[derive(Default)]
pub struct Tokens {
    last: BTreeMap<LockName, (Zxid, Zxid)>,
}

impl Tokens {
    /// Checks a hold that began at a position.
    pub fn began(&mut self, hold: &Hold, at: Zxid) -> Check {
        self.given(&hold.lock, hold.fencing_token, at)
    }

    fn given(&mut self, lock: &LockName, token: Zxid, at: Zxid) -> Check {
        match self.last.insert(lock.clone(), (token, at)) {
            _ if token > at => Err(format!("{lock} was granted at {at} with the later token {token}")),
            Some((before, then)) if then == at && before <= token => Ok(()),
            Some((before, then)) if before >= token => Err(format!(
                "{lock} was granted with the token {token} at {at}, after {before} at {then}"
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decreasing_token_is_a_violation() {
        let [a, b] = ["a", "b"].map(|name| LockName::parse(name).expect("a name"));
        let mut tokens = Tokens::default();
        assert_eq!(tokens.given(&a, Zxid(5), Zxid(6)), Ok(()));
        assert_eq!(tokens.given(&b, Zxid(4), Zxid(7)), Ok(()));
        assert_eq!(tokens.given(&a, Zxid(8), Zxid(8)), Ok(()));
        assert_eq!(
            tokens.given(&a, Zxid(8), Zxid(8)),
            Ok(()),
            "granted by the same command"
        );
        assert!(tokens.given(&a, Zxid(8), Zxid(9)).is_err());
        assert!(
            tokens.given(&b, Zxid(10), Zxid(9)).is_err(),
            "a token above its position"
        );
    }
}
