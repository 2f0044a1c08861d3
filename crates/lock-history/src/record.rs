//! What is kept of a hold, and its bytes: a version, then bincode of structures that are fixed here, so that a change of
//! the state machine's types does not change what is on the disk.

use serde::{Deserialize, Serialize};
use znode_store::{ContenderEnd, Hold, LockMode, LockName, SessionId, Zxid};

use crate::error::IndexError;

/// The version of all values. Another one is not read; the index is made anew then.
pub(crate) const VERSION: u8 = 1;

/// A position in the history of the tree, and its time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The zxid of the last command.
    pub zxid: u64,
    /// Its time in milliseconds since 1970, by the leader's clock.
    pub time_ms: u64,
}

/// A hold that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Who held what. `since_ms` is `None` if nobody saw the beginning.
    pub hold: Hold,
    /// How it ended.
    pub end: End,
}

/// How a hold ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// By this command.
    Known {
        /// Where and when.
        at: Position,
        /// How.
        how: ContenderEnd,
        /// Who took it away, as far as that is known.
        by: Option<String>,
    },
    /// In a gap.
    Hidden {
        /// It still held then.
        not_before: Position,
        /// It held no more then.
        not_after: Position,
    },
}

impl End {
    /// The position from which on it is over.
    pub(crate) fn over(&self) -> Position {
        match self {
            Self::Known { at, .. } => *at,
            Self::Hidden { not_after, .. } => *not_after,
        }
    }
}

/// A piece of the past of which the index knows nothing. Holds that began and ended in it are missing, of others the
/// beginning or the end may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The last position before it.
    pub after: Position,
    /// The last position in it.
    pub until: Position,
}

#[derive(Serialize, Deserialize)]
struct StoredHold {
    lock: String,
    holder: String,
    session: u64,
    session_name: String,
    mode: StoredMode,
    permits: u32,
    token: u64,
    owner: String,
    note: String,
    address: String,
    since_ms: Option<u64>,
}

#[derive(Serialize, Deserialize)]
enum StoredMode {
    Exclusive,
    Shared,
    Semaphore(u32),
}

#[derive(Serialize, Deserialize)]
struct StoredRecord {
    hold: StoredHold,
    end: StoredEnd,
}

#[derive(Serialize, Deserialize)]
enum StoredEnd {
    Known(Position, StoredHow, Option<String>),
    Hidden(Position, Position),
}

#[derive(Serialize, Deserialize)]
enum StoredHow {
    Released,
    Withdrawn,
    SessionClosed,
    SessionExpired,
    Broken(String),
    Deleted,
}

/// What is kept about the index as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Meta {
    /// Which data directory it belongs to.
    pub owner: [u8; 16],
    /// Up to where it has been told everything, but for the gaps.
    pub reached: Position,
    /// From where on there are records.
    pub since: Position,
    /// The oldest first.
    pub gaps: Vec<Gap>,
}

impl From<&Hold> for StoredHold {
    fn from(hold: &Hold) -> Self {
        Self {
            lock: hold.lock.as_str().to_owned(),
            holder: hold.holder.as_ref().to_owned(),
            session: hold.session.0,
            session_name: hold.session_name.as_ref().to_owned(),
            mode: match hold.mode {
                LockMode::Exclusive => StoredMode::Exclusive,
                LockMode::Shared => StoredMode::Shared,
                LockMode::Semaphore { limit } => StoredMode::Semaphore(limit),
            },
            permits: hold.permits,
            token: hold.fencing_token.0,
            owner: hold.owner.as_ref().to_owned(),
            note: hold.note.as_ref().to_owned(),
            address: hold.address.as_ref().to_owned(),
            since_ms: hold.since_ms,
        }
    }
}

impl TryFrom<StoredHold> for Hold {
    type Error = IndexError;

    fn try_from(stored: StoredHold) -> Result<Self, IndexError> {
        let lock = LockName::parse(&stored.lock);
        Ok(Self {
            lock: lock.map_err(|bad| IndexError::Damaged(format!("a lock's name: {bad}")))?,
            holder: stored.holder.into(),
            session: SessionId(stored.session),
            session_name: stored.session_name.into(),
            mode: match stored.mode {
                StoredMode::Exclusive => LockMode::Exclusive,
                StoredMode::Shared => LockMode::Shared,
                StoredMode::Semaphore(limit) => LockMode::Semaphore { limit },
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

impl From<&End> for StoredEnd {
    fn from(end: &End) -> Self {
        match end {
            End::Known { at, how, by } => {
                let how = match how {
                    ContenderEnd::Released => StoredHow::Released,
                    ContenderEnd::Withdrawn => StoredHow::Withdrawn,
                    ContenderEnd::SessionClosed => StoredHow::SessionClosed,
                    ContenderEnd::SessionExpired => StoredHow::SessionExpired,
                    ContenderEnd::Broken(reason) => StoredHow::Broken(reason.as_ref().to_owned()),
                    ContenderEnd::Deleted => StoredHow::Deleted,
                };
                Self::Known(*at, how, by.clone())
            }
            End::Hidden {
                not_before,
                not_after,
            } => Self::Hidden(*not_before, *not_after),
        }
    }
}

impl From<StoredEnd> for End {
    fn from(stored: StoredEnd) -> Self {
        match stored {
            StoredEnd::Known(at, how, by) => {
                let how = match how {
                    StoredHow::Released => ContenderEnd::Released,
                    StoredHow::Withdrawn => ContenderEnd::Withdrawn,
                    StoredHow::SessionClosed => ContenderEnd::SessionClosed,
                    StoredHow::SessionExpired => ContenderEnd::SessionExpired,
                    StoredHow::Broken(reason) => ContenderEnd::Broken(reason.into()),
                    StoredHow::Deleted => ContenderEnd::Deleted,
                };
                Self::Known { at, how, by }
            }
            StoredEnd::Hidden(not_before, not_after) => Self::Hidden {
                not_before,
                not_after,
            },
        }
    }
}

/// The bytes of an open hold.
pub(crate) fn hold_bytes(hold: &Hold) -> Vec<u8> {
    encode(&StoredHold::from(hold))
}

/// Reads an open hold.
pub(crate) fn read_hold(bytes: &[u8]) -> Result<Hold, IndexError> {
    decode::<StoredHold>(bytes)?.try_into()
}

/// The bytes of a record.
pub(crate) fn record_bytes(hold: &Hold, end: &End) -> Vec<u8> {
    encode(&StoredRecord {
        hold: hold.into(),
        end: end.into(),
    })
}

/// Reads a record.
pub(crate) fn read_record(bytes: &[u8]) -> Result<Record, IndexError> {
    let StoredRecord { hold, end } = decode(bytes)?;
    Ok(Record {
        hold: hold.try_into()?,
        end: end.into(),
    })
}

/// The bytes of what is kept about the index as a whole.
pub(crate) fn meta_bytes(meta: &Meta) -> Vec<u8> {
    encode(meta)
}

/// Reads what is kept about the index as a whole.
pub(crate) fn read_meta(bytes: &[u8]) -> Result<Meta, IndexError> {
    decode(bytes)
}

fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    bincode::serde::encode_into_std_write(value, &mut bytes, bincode::config::standard())
        .expect("our own types always encode, and memory takes all");
    bytes
}

/// A value is some kilobytes at most. What claims to be longer is damaged, and no room is made for it.
const MAX_VALUE_BYTES: usize = 1024 * 1024;

fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, IndexError> {
    let bad = |what: String| IndexError::Damaged(format!("a value makes no sense: {what}"));
    let bytes = match bytes.split_first() {
        Some((&VERSION, bytes)) => bytes,
        Some((&other, _)) => return Err(IndexError::OtherVersion(other)),
        None => return Err(bad("it is empty".to_owned())),
    };
    let config = bincode::config::standard().with_limit::<MAX_VALUE_BYTES>();
    match bincode::serde::decode_from_slice(bytes, config) {
        Ok((value, used)) if used == bytes.len() => Ok(value),
        Ok((_, used)) => Err(bad(format!("{} bytes too many", bytes.len() - used))),
        Err(error) => Err(bad(error.to_string())),
    }
}
