//! Tokens: secrets that stand for a role. Only the owner of a token knows the secret, 256 random bits. The state has its SHA-256, computed
//! by the front end, and the public id of the token.

use alloc::sync::Arc;
use core::fmt::{self, Write as _};
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::model::access::role::RoleName;

/// Maximum length of the description of a token in bytes: a line, for people to read.
pub const MAX_DESCRIPTION_BYTES: usize = 256;

/// Public id of a token: 16 random bytes from the proposing node, shown as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TokenId(pub [u8; 16]);

/// Error for a text that is no id of a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the id of a token has 32 hexadecimal digits")]
pub struct BadTokenId;

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for TokenId {
    type Err = BadTokenId;

    fn from_str(text: &str) -> Result<Self, BadTokenId> {
        let digits = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        match u128::from_str_radix(text, 16) {
            Ok(id) if digits && text.len() == 32 => Ok(Self(id.to_be_bytes())),
            _ => Err(BadTokenId),
        }
    }
}

/// SHA-256 of a token's secret. It needs no salt, because 256 random bits cannot be found by trial. It is not shown all the same.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenHash(pub [u8; 32]);

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hash)")
    }
}

/// Token in the state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Id.
    pub id: TokenId,
    /// Hash of the secret.
    pub hash: TokenHash,
    /// The role.
    pub role: RoleName,
    /// Description, for people to read.
    pub description: Arc<str>,
    /// Time of creation in milliseconds since 1970.
    pub created_at_ms: u64,
    /// Time of expiry in milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
}

impl Token {
    /// Returns whether the token has expired.
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_at_ms.is_some_and(|end| end <= now_ms)
    }

    pub(crate) fn view(&self) -> TokenView {
        TokenView {
            id: self.id,
            role: self.role.clone(),
            description: self.description.clone(),
            created_at_ms: self.created_at_ms,
            expires_at_ms: self.expires_at_ms,
        }
    }
}

/// View of a token: everything but its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenView {
    /// Id.
    pub id: TokenId,
    /// The role.
    pub role: RoleName,
    /// Description, for people to read.
    pub description: Arc<str>,
    /// Time of creation in milliseconds since 1970.
    pub created_at_ms: u64,
    /// Time of expiry in milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
}

impl fmt::Display for TokenView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, role, .. } = self;
        write!(f, "token {id} for role {role}")?;
        if !self.description.is_empty() {
            write!(f, " {:?}", self.description)?;
        }
        write!(f, " made at {}", self.created_at_ms)?;
        match self.expires_at_ms {
            Some(end) => write!(f, " expires at {end}"),
            None => f.write_str(""),
        }
    }
}

impl TokenId {
    /// Appends the id to a text that identifies a principal.
    pub(crate) fn append_to(self, text: &mut alloc::string::String) {
        write!(text, "{self}").expect("a text takes what is written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn ids_are_hexadecimal_digits() {
        let id = TokenId([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]);
        assert_eq!(id.to_string(), "000102030405060708090a0b0c0d0eff");
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in [
            "",
            "00",
            "000102030405060708090A0b0c0d0eff",
            "+00102030405060708090a0b0c0d0eff",
        ] {
            assert_eq!(bad.parse::<TokenId>(), Err(BadTokenId), "{bad:?}");
        }
    }
}
