//! Fencing tokens.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Number of a grant: of two conflicting grants of one lock the later one has the larger token.
///
/// A storage that is written under the lock keeps the largest token that it has seen, and refuses smaller ones. So it refuses writes of a
/// holder that was paused, lost its lock, and has not noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FencingToken(pub u64);

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

impl From<u64> for FencingToken {
    fn from(token: u64) -> Self {
        Self(token)
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
