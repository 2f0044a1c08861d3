//! Basic values: positions, session ids, passwords, request ids.

use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// Position in the history of the tree. Each applied command takes the next number.
///
/// It never decreases and never skips a number, over terms, restarts and restores of snapshots. Fencing tokens are zxids.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Zxid(pub u64);

impl fmt::Display for Zxid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Id of a session: never 0, unique while the cluster lives, shown as 16 hexadecimal digits.
///
/// It is a positive 64-bit number whose high byte is below 0x80, so that it can be the ephemeral owner in
/// ZooKeeper's `Stat`, where the other values mean containers and TTL nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId(pub u64);

/// Error for a text that is no session id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a session id has 16 hexadecimal digits")]
pub struct BadSessionId;

impl SessionId {
    /// Makes a legal id of 64 random bits.
    pub fn from_random(bits: u64) -> Self {
        Self((bits & (u64::MAX >> 1)).max(1))
    }

    /// Returns whether the number is one that a session can have.
    pub(crate) fn is_legal(self) -> bool {
        self.0 != 0 && self.0 >> 63 == 0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for SessionId {
    type Err = BadSessionId;

    fn from_str(text: &str) -> Result<Self, BadSessionId> {
        let digits = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        match u64::from_str_radix(text, 16) {
            Ok(id) if digits && text.len() == 16 && Self(id).is_legal() => Ok(Self(id)),
            _ => Err(BadSessionId),
        }
    }
}

/// Password that a client shows to resume a session that it opened: 128 random bits.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Password(pub [u8; 16]);

impl Password {
    /// Compares in a time that does not depend on the bytes.
    pub fn matches(&self, other: &Self) -> bool {
        let differing = self.0.iter().zip(&other.0).fold(0, |all, (a, b)| all | (a ^ b));
        core::hint::black_box(differing) == 0
    }
}

/// Session and password of a lease. Who knows them may renew and release it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseKey {
    /// The session of the lease.
    pub session: SessionId,
    /// Its password.
    pub password: Password,
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// Maximum length of a request id in bytes, as in the HTTP API.
pub const MAX_REQUEST_ID_BYTES: usize = 64;

/// Id that a client gives a request, by which a repetition is recognised. Unique per session.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RequestId(Arc<str>);

/// Error for a text that is no request id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a request_id has 1 to {MAX_REQUEST_ID_BYTES} bytes")]
pub struct BadRequestId;

impl RequestId {
    /// Checks the length of a text and returns it as a request id.
    pub fn parse(text: &str) -> Result<Self, BadRequestId> {
        match text.len() {
            1..=MAX_REQUEST_ID_BYTES => Ok(Self(text.into())),
            _ => Err(BadRequestId),
        }
    }

    /// Returns the text of the id.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the text of the id, shared.
    pub(crate) fn shared(&self) -> Arc<str> {
        self.0.clone()
    }
}

impl TryFrom<String> for RequestId {
    type Error = BadRequestId;

    fn try_from(text: String) -> Result<Self, BadRequestId> {
        Self::parse(&text)
    }
}

impl From<RequestId> for String {
    fn from(id: RequestId) -> String {
        id.as_str().into()
    }
}
