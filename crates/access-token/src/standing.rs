//! What a node knows of a token that is shown to it.

use znode_store::{Store, TokenId, Unproven};

use crate::secret::Secret;

/// A token as one node knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Whoever shows it is who it says.
    Good {
        /// From when on it counts no more, in milliseconds since 1970.
        expires_at_ms: Option<u64>,
    },
    /// It is not that token's secret, or its time is over.
    Bad(Unproven),
    /// There is no such token: it was revoked, or never made, or this node is behind.
    Unknown,
}

impl Standing {
    /// Looks it up. `now_ms`: by this node's clock, since 1970.
    pub fn of(store: &Store, id: TokenId, secret: &Secret, now_ms: u64) -> Self {
        let Some(token) = store.token(id) else {
            return Self::Unknown;
        };
        // While nothing is asked of an open or idle cluster its time stands still, and the token's would not pass.
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
