//! The keys in sled, all in one tree, so that one batch changes all of them or none.
//!
//! | key | value |
//! |---|---|
//! | `m` | what is kept about the index as a whole |
//! | `o`, token (8), lock, 0, holder | an open hold |
//! | `r`, zxid (8), token (8), lock, 0, holder | a record; the zxid is that of its end |
//!
//! Numbers are big endian, so that records lie in the order of their ends: new ones at the end of the tree, those that go
//! at its beginning. Neither a lock's name nor a znode's has a zero byte in it.

use std::sync::Arc;

use znode_store::Hold;

use crate::error::IndexError;

pub(crate) const META: &[u8] = b"m";
pub(crate) const OPEN: &[u8] = b"o";
pub(crate) const RECORD: &[u8] = b"r";

/// The name of a hold. In this order those of one lock lie side by side, the latest last: contenders are let in in the
/// order in which they came.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HoldId {
    pub lock: Arc<str>,
    pub token: u64,
    pub holder: Arc<str>,
}

impl HoldId {
    pub fn of(hold: &Hold) -> Self {
        Self {
            lock: hold.lock.as_str().into(),
            token: hold.fencing_token.0,
            holder: hold.holder.clone(),
        }
    }

    /// The key of the open hold.
    pub fn open_key(&self) -> Vec<u8> {
        let mut key = OPEN.to_vec();
        self.append(&mut key);
        key
    }

    /// The key of the record.
    pub fn record_key(&self, zxid: u64) -> Vec<u8> {
        let mut key = RECORD.to_vec();
        key.extend_from_slice(&zxid.to_be_bytes());
        self.append(&mut key);
        key
    }

    fn append(&self, key: &mut Vec<u8>) {
        key.extend_from_slice(&self.token.to_be_bytes());
        key.extend_from_slice(self.lock.as_bytes());
        key.push(0);
        key.extend_from_slice(self.holder.as_bytes());
    }
}

/// The zxid in a record's key.
pub(crate) fn record_zxid(key: &[u8]) -> Result<u64, IndexError> {
    let zxid = key.get(1..9).and_then(|bytes| bytes.try_into().ok());
    zxid.map(u64::from_be_bytes)
        .ok_or_else(|| IndexError::Damaged("a record's key is too short".to_owned()))
}
