//! Keys in sled, all in one tree, so that one batch changes all of them or none.
//!
//! | key | value |
//! |---|---|
//! | `c`, share (1), number (8) | a chunk of records of a share in the order in which they were recorded; its chunks are numbered consecutively |
//! | `m` | metadata of the index |
//! | `o`, token (8), lock, 0, holder | an open hold |
//!
//! Numbers are big endian, so that chunks are stored in the order in which they were written: new chunks at
//! the end, removed ones at the beginning. Neither lock names nor znode names contain a zero byte.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use znode_store::Hold;

use crate::error::IndexError;
use crate::share::SHARES;

pub(crate) const CHUNK: &[u8] = b"c";
pub(crate) const META: &[u8] = b"m";
pub(crate) const OPEN: &[u8] = b"o";

/// Identity of a hold as numbers: the hash of its lock, its own hash, and its token. Strings would take
/// memory of their own, usually not in the cache when they are needed. Of holds with one token, which began
/// with one transaction, it takes about 2^32 until two have the same hash. Nobody can provoke collisions from
/// outside, because each process uses its own random hash keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HoldKey {
    pub lock: u64,
    pub token: u64,
    hold: u64,
}

/// The field `hold` is a hash already.
impl Hash for HoldKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hold.hash(state);
    }
}

/// Hasher of names.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    /// Random keys of this process.
    keys: RandomState,
    /// Random number of the data directory. It chooses the shares, which are on disk.
    owner: [u8; 16],
}

impl Names {
    /// Creates the hasher for the index of the data directory `owner`.
    pub fn new(owner: [u8; 16]) -> Self {
        let keys = RandomState::new();
        Self { keys, owner }
    }

    /// Returns the hash of a lock's name.
    pub fn lock(&self, name: &str) -> u64 {
        self.keys.hash_one(name)
    }

    /// Returns the number of the share of a lock: a checksum of the first part of its name.
    pub fn share(&self, lock: &str) -> usize {
        let top = lock.split('/').next().unwrap_or_default();
        crc32c::crc32c_append(crc32c::crc32c(&self.owner), top.as_bytes()) as usize % SHARES
    }

    /// Returns the key of the hold with this name.
    pub fn hold(&self, lock: &str, token: u64, holder: &str) -> HoldKey {
        let lock = self.lock(lock);
        let hold = self.keys.hash_one((lock, token, holder));
        HoldKey { lock, token, hold }
    }

    /// Returns the key of a hold.
    pub fn of(&self, hold: &Hold) -> HoldKey {
        self.hold(hold.lock.as_str(), hold.fencing_token.0, &hold.holder)
    }
}

/// Returns the database key of an open hold.
pub(crate) fn open_key(hold: &Hold) -> Vec<u8> {
    let (lock, holder) = (hold.lock.as_str(), &*hold.holder);
    let mut key = Vec::with_capacity(OPEN.len() + 8 + lock.len() + 1 + holder.len());
    key.extend_from_slice(OPEN);
    key.extend_from_slice(&hold.fencing_token.0.to_be_bytes());
    key.extend_from_slice(lock.as_bytes());
    key.push(0);
    key.extend_from_slice(holder.as_bytes());
    key
}

/// Returns the database key of a chunk of a share.
pub(crate) fn chunk_key(share: usize, number: u64) -> [u8; 10] {
    let mut key = [0; 10];
    key[..1].copy_from_slice(CHUNK);
    key[1] = u8::try_from(share).expect("there are few shares");
    key[2..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Returns the share and the number in a chunk's database key.
pub(crate) fn chunk_of(key: &[u8]) -> Result<(usize, u64), IndexError> {
    let parsed = key.strip_prefix(CHUNK).and_then(|key| {
        let (share, number) = key.split_first()?;
        let share = usize::from(*share);
        let number = u64::from_be_bytes(number.try_into().ok()?);
        (share < SHARES).then_some((share, number))
    });
    parsed.ok_or_else(|| IndexError::Damaged("the key of a chunk is malformed".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_with_one_top_level_name_are_in_one_share_and_names_are_spread() {
        let names = Names::new([7; 16]);
        assert_eq!(names.share("a"), names.share("a/b/c"));
        let mut found = [0; SHARES];
        for number in 0..1_600 {
            found[names.share(&format!("team-{number}/jobs"))] += 1;
        }
        assert!(found.iter().all(|count| (50..200).contains(count)), "{found:?}");
    }
}
