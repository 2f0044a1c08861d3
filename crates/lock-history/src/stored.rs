//! Encoding of records and open holds: a version byte, then bincode of structures defined here, so that changes of
//! the state machine's types do not change the format on disk. The stored structures borrow their strings,
//! because most records are written and never read.

use serde::{Deserialize, Serialize};
use znode_store::{ContenderEnd, Hold, LockMode, LockName, SessionId, Zxid};

use crate::error::IndexError;
use crate::keys::{HoldKey, Names};
use crate::record::{End, HistoryGap, HoldRecord, Position};
use crate::ring::End as Ended;

/// Format version of all values. An index with another version is not read, but recreated.
pub(crate) const VERSION: u8 = 4;

/// Metadata of the index, beside that of its shares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Meta {
    /// Data directory that the index belongs to.
    pub owner: [u8; 16],
    /// Position up to which everything is recorded, except for the gaps.
    pub reached: Position,
    /// Gaps, the oldest first.
    pub gaps: Vec<HistoryGap>,
}

/// Metadata of a share.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShareMeta {
    /// Position from which on there are records.
    pub since: Position,
    /// Number of the next chunk.
    pub next_chunk: u64,
    /// End and location of the record that was evicted last. It and earlier ones may still be in a chunk.
    pub gone: Option<Ended>,
}

#[derive(Serialize, Deserialize)]
struct StoredHold<'a> {
    lock: &'a str,
    holder: &'a str,
    session: u64,
    session_name: &'a str,
    mode: StoredMode,
    permits: u32,
    token: u64,
    owner: &'a str,
    note: &'a str,
    address: &'a str,
    since_ms: Option<u64>,
}

#[derive(Serialize, Deserialize)]
enum StoredMode {
    Exclusive,
    Shared,
    Semaphore(u32),
    Upgradeable,
}

/// Stored form of a record.
#[derive(Serialize, Deserialize)]
pub(crate) struct StoredRecord<'a> {
    #[serde(borrow)]
    hold: StoredHold<'a>,
    #[serde(borrow)]
    end: StoredEnd<'a>,
}

/// Stored form of [`End`].
#[derive(Serialize, Deserialize)]
pub(crate) enum StoredEnd<'a> {
    /// The hold was ended by a known command.
    Known(Position, #[serde(borrow)] StoredHow<'a>, Option<&'a str>),
    /// The hold ended within a gap.
    Hidden(Position, Position),
}

#[derive(Serialize, Deserialize)]
pub(crate) enum StoredHow<'a> {
    Released,
    Withdrawn,
    SessionClosed,
    SessionExpired,
    /// An operator (`by`) broke the hold for this reason.
    Broken {
        by: &'a str,
        reason: &'a str,
    },
    Deleted,
    Upgraded,
    MaxHold,
}

impl<'a> StoredHold<'a> {
    fn of(hold: &'a Hold, since_ms: Option<u64>) -> Self {
        Self {
            lock: hold.lock.as_str(),
            holder: &hold.holder,
            session: hold.session.0,
            session_name: &hold.session_name,
            mode: match hold.mode {
                LockMode::Exclusive => StoredMode::Exclusive,
                LockMode::Shared => StoredMode::Shared,
                LockMode::Semaphore { limit } => StoredMode::Semaphore(limit),
                LockMode::Upgradeable => StoredMode::Upgradeable,
            },
            permits: hold.permits,
            token: hold.fencing_token.0,
            owner: &hold.owner,
            note: &hold.note,
            address: hold.address.as_str(),
            since_ms,
        }
    }
}

impl<'a> StoredRecord<'a> {
    /// Creates the record of a hold that began at `since_ms`.
    pub fn of(hold: &'a Hold, since_ms: Option<u64>, end: StoredEnd<'a>) -> Self {
        let hold = StoredHold::of(hold, since_ms);
        Self { hold, end }
    }

    /// Returns the key of the hold.
    pub fn key(&self, names: &Names) -> HoldKey {
        names.hold(self.hold.lock, self.hold.token, self.hold.holder)
    }

    /// Returns the end of the hold.
    pub fn end(&self) -> &StoredEnd<'a> {
        &self.end
    }
}

impl<'a> StoredEnd<'a> {
    /// Creates a known end.
    pub fn known(at: Position, how: &'a ContenderEnd, by: Option<&'a str>) -> Self {
        let how = match how {
            ContenderEnd::Released => StoredHow::Released,
            // A contender that waits for an impossible lock has held nothing; if it had a record, the record
            // would say `withdrawn`.
            ContenderEnd::Withdrawn | ContenderEnd::NeverGrantable { .. } | ContenderEnd::Forbidden => {
                StoredHow::Withdrawn
            }
            ContenderEnd::SessionClosed => StoredHow::SessionClosed,
            ContenderEnd::SessionExpired => StoredHow::SessionExpired,
            ContenderEnd::Broken { by, reason } => StoredHow::Broken { by, reason },
            ContenderEnd::Deleted => StoredHow::Deleted,
            ContenderEnd::Upgraded => StoredHow::Upgraded,
            ContenderEnd::MaxHold => StoredHow::MaxHold,
        };
        Self::Known(at, how, by)
    }

    /// Returns the position from which on the hold is over.
    pub fn over(&self) -> Position {
        match self {
            Self::Known(at, ..) => *at,
            Self::Hidden(_, not_after) => *not_after,
        }
    }

    /// Returns whether the hold ended within a gap.
    pub fn is_hidden(&self) -> bool {
        matches!(self, Self::Hidden(..))
    }
}

fn parse_lock(name: &str) -> Result<LockName, IndexError> {
    LockName::parse(name).map_err(|bad| IndexError::Damaged(format!("an invalid lock name: {bad}")))
}

impl TryFrom<StoredHold<'_>> for Hold {
    type Error = IndexError;

    fn try_from(stored: StoredHold<'_>) -> Result<Self, IndexError> {
        Ok(Self {
            lock: parse_lock(stored.lock)?,
            holder: stored.holder.into(),
            session: SessionId(stored.session),
            session_name: stored.session_name.into(),
            mode: match stored.mode {
                StoredMode::Exclusive => LockMode::Exclusive,
                StoredMode::Shared => LockMode::Shared,
                StoredMode::Semaphore(limit) => LockMode::Semaphore { limit },
                StoredMode::Upgradeable => LockMode::Upgradeable,
            },
            permits: stored.permits,
            fencing_token: Zxid(stored.token),
            owner: stored.owner.into(),
            note: stored.note.into(),
            address: stored.address.into(),
            since_ms: stored.since_ms,
        })
    }
}

impl From<StoredEnd<'_>> for End {
    fn from(stored: StoredEnd<'_>) -> Self {
        match stored {
            StoredEnd::Known(at, how, by) => {
                let how = match how {
                    StoredHow::Released => ContenderEnd::Released,
                    StoredHow::Withdrawn => ContenderEnd::Withdrawn,
                    StoredHow::SessionClosed => ContenderEnd::SessionClosed,
                    StoredHow::SessionExpired => ContenderEnd::SessionExpired,
                    StoredHow::Broken { by, reason } => ContenderEnd::Broken {
                        by: by.into(),
                        reason: reason.into(),
                    },
                    StoredHow::Deleted => ContenderEnd::Deleted,
                    StoredHow::Upgraded => ContenderEnd::Upgraded,
                    StoredHow::MaxHold => ContenderEnd::MaxHold,
                };
                let by = by.map(str::to_owned);
                Self::Known { at, how, by }
            }
            StoredEnd::Hidden(not_before, not_after) => Self::Hidden {
                not_before,
                not_after,
            },
        }
    }
}

impl TryFrom<StoredRecord<'_>> for HoldRecord {
    type Error = IndexError;

    fn try_from(stored: StoredRecord<'_>) -> Result<Self, IndexError> {
        Ok(Self {
            hold: stored.hold.try_into()?,
            end: stored.end.into(),
        })
    }
}

/// Encodes an open hold.
pub(crate) fn hold_bytes(hold: &Hold) -> Vec<u8> {
    encode(&StoredHold::of(hold, hold.since_ms))
}

/// Decodes an open hold.
pub(crate) fn read_hold(bytes: &[u8]) -> Result<Hold, IndexError> {
    decode::<StoredHold<'_>>(bytes)?.try_into()
}

/// Encodes the metadata of the index.
pub(crate) fn meta_bytes(meta: &Meta, shares: &[ShareMeta]) -> Vec<u8> {
    encode(&(meta, shares))
}

/// Decodes the metadata of the index.
pub(crate) fn read_meta(bytes: &[u8]) -> Result<(Meta, Vec<ShareMeta>), IndexError> {
    decode(bytes)
}

fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    append(value, &mut bytes);
    bytes
}

/// Appends the encoding of a value, without a version byte.
pub(crate) fn append<T: Serialize>(value: &T, bytes: &mut Vec<u8>) {
    bincode::serde::encode_into_std_write(value, bytes, bincode::config::standard())
        .expect("our own types always encode, and memory takes all");
}

/// Maximum size of a value in bytes; real ones have some kilobytes. A value that claims to be longer is
/// damaged, and no memory is allocated for it.
const MAX_VALUE_BYTES: usize = 1024 * 1024;

fn bad(what: String) -> IndexError {
    IndexError::Damaged(format!("a stored value is malformed: {what}"))
}

/// Strips the version byte and checks it.
pub(crate) fn behind_version(bytes: &[u8]) -> Result<&[u8], IndexError> {
    match bytes.split_first() {
        Some((&VERSION, bytes)) => Ok(bytes),
        Some((&other, _)) => Err(IndexError::OtherVersion(other)),
        None => Err(bad("it is empty".to_owned())),
    }
}

/// Decodes the value at the beginning of `bytes` and returns it with its length.
pub(crate) fn read_first<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<(T, usize), IndexError> {
    let config = bincode::config::standard().with_limit::<MAX_VALUE_BYTES>();
    bincode::serde::borrow_decode_from_slice(bytes, config).map_err(|error| bad(error.to_string()))
}

fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, IndexError> {
    read_all(behind_version(bytes)?)
}

/// Decodes a value that fills `bytes`.
fn read_all<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, IndexError> {
    match read_first(bytes)? {
        (value, used) if used == bytes.len() => Ok(value),
        (_, used) => Err(bad(format!("{} bytes too many", bytes.len() - used))),
    }
}
