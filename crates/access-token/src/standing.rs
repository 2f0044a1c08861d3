//! Validity of a token on one node.

use znode_store::{Store, TokenId, Unproven};

use crate::secret::Secret;

/// Validity of a presented token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The token is valid.
    Good {
        /// Expiry of the token in milliseconds since 1970.
        expires_at_ms: Option<u64>,
    },
    /// The secret does not match, or the token has expired.
    Bad(Unproven),
    /// There is no such token: it was revoked, never existed, or this node lags behind.
    Unknown,
}

impl Standing {
    /// Checks a token and its secret. `now_ms` is this node's clock, in milliseconds since 1970.
    pub fn of(store: &Store, id: TokenId, secret: &Secret, now_ms: u64) -> Self {
        let Some(token) = store.token(id) else {
            return Self::Unknown;
        };
        // The store's time advances only with commands. Without the node's clock, a token would not expire on
        // an idle cluster.
        let now_ms = store.time_ms().max(now_ms);
        match (secret.has(&token.hash), token.is_expired(now_ms)) {
            (false, _) => Self::Bad(Unproven::Token),
            (true, true) => Self::Bad(Unproven::Expired),
            (true, false) => Self::Good {
                expires_at_ms: token.expires_at_ms,
            },
        }
    }
}
