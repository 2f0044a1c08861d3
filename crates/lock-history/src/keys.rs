//! The keys in sled, all in one tree, so that one batch changes all of them or none.
//!
//! | key | value |
//! |---|---|
//! | `c`, number (8) | a chunk of records, in the order in which they were told; chunks are numbered one after the other |
//! | `m` | what is kept about the index as a whole |
//! | `o`, token (8), lock, 0, holder | an open hold |
//!
//! Numbers are big endian, so that chunks lie in the order in which they were written: new ones at the end, those that go
//! at the beginning. Neither a lock's name nor a znode's has a zero byte in it.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use znode_store::{Hold, LockName};

use crate::error::IndexError;

pub(crate) const CHUNK: &[u8] = b"c";
pub(crate) const META: &[u8] = b"m";
pub(crate) const OPEN: &[u8] = b"o";

/// The name of a hold. In this order those of one lock lie side by side, the latest last: contenders are let in in the
/// order in which they came.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HoldId {
    pub lock: LockName,
    pub token: u64,
    pub holder: Arc<str>,
}

/// By the token alone: only holds that began with one transaction have it in common.
impl Hash for HoldId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.token.hash(state);
    }
}

impl HoldId {
    pub fn of(hold: &Hold) -> Self {
        Self {
            lock: hold.lock.clone(),
            token: hold.fencing_token.0,
            holder: hold.holder.clone(),
        }
    }

    /// The key of the open hold.
    pub fn open_key(&self) -> Vec<u8> {
        let (lock, holder) = (self.lock.as_str(), &*self.holder);
        let mut key = Vec::with_capacity(OPEN.len() + 8 + lock.len() + 1 + holder.len());
        key.extend_from_slice(OPEN);
        key.extend_from_slice(&self.token.to_be_bytes());
        key.extend_from_slice(lock.as_bytes());
        key.push(0);
        key.extend_from_slice(holder.as_bytes());
        key
    }
}

/// The key of a chunk.
pub(crate) fn chunk_key(number: u64) -> [u8; 9] {
    let mut key = [0; 9];
    key[..1].copy_from_slice(CHUNK);
    key[1..].copy_from_slice(&number.to_be_bytes());
    key
}

/// The number in a chunk's key.
pub(crate) fn chunk_number(key: &[u8]) -> Result<u64, IndexError> {
    let number = key.strip_prefix(CHUNK).and_then(|bytes| bytes.try_into().ok());
    number
        .map(u64::from_be_bytes)
        .ok_or_else(|| IndexError::Damaged("a chunk's key makes no sense".to_owned()))
}
