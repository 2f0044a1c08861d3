//! Watches: requests to set, check and remove them, and notifications.

use crate::{DecodeError, Reader, Request, Writer};

/// Values of a [`Notification`]'s `kind`, with ZooKeeper's names. Servers send only those of changes.
#[allow(missing_docs, reason = "the names are ZooKeeper's own")]
pub mod event_type {
    pub const NONE: i32 = -1;
    pub const NODE_CREATED: i32 = 1;
    pub const NODE_DELETED: i32 = 2;
    pub const NODE_DATA_CHANGED: i32 = 3;
    pub const NODE_CHILDREN_CHANGED: i32 = 4;
    pub const DATA_WATCH_REMOVED: i32 = 5;
    pub const CHILD_WATCH_REMOVED: i32 = 6;
    pub const PERSISTENT_WATCH_REMOVED: i32 = 7;
}

/// Values of a [`Notification`]'s `state`, with ZooKeeper's names. Servers send
/// [`SYNC_CONNECTED`](keeper_state::SYNC_CONNECTED).
#[allow(missing_docs, reason = "the names are ZooKeeper's own")]
pub mod keeper_state {
    pub const DISCONNECTED: i32 = 0;
    pub const SYNC_CONNECTED: i32 = 3;
    pub const AUTH_FAILED: i32 = 4;
    pub const CONNECTED_READ_ONLY: i32 = 5;
    pub const SASL_AUTHENTICATED: i32 = 6;
    pub const CLOSED: i32 = 7;
    pub const EXPIRED: i32 = -112;
}

/// Values of addWatch's `mode`, with ZooKeeper's names.
#[allow(missing_docs, reason = "the names are ZooKeeper's own")]
pub mod watch_mode {
    pub const PERSISTENT: i32 = 0;
    pub const PERSISTENT_RECURSIVE: i32 = 1;
}

/// Values of the `kind` of checkWatches and removeWatches, with ZooKeeper's names.
#[allow(missing_docs, reason = "the names are ZooKeeper's own")]
pub mod watcher_type {
    pub const CHILDREN: i32 = 1;
    pub const DATA: i32 = 2;
    pub const ANY: i32 = 3;
    pub const PERSISTENT: i32 = 4;
    pub const PERSISTENT_RECURSIVE: i32 = 5;
}

/// Paths of the watches that a reconnected client sets again.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "the names are ZooKeeper's own")]
pub struct SetWatches {
    pub data: Vec<String>,
    pub exist: Vec<String>,
    pub child: Vec<String>,
    pub persistent: Vec<String>,
    pub persistent_recursive: Vec<String>,
}

impl SetWatches {
    pub(crate) fn encode_three(&self, relative_zxid: i64, to: &mut Writer<'_>) {
        to.long(relative_zxid);
        for paths in [&self.data, &self.exist, &self.child] {
            to.texts(paths);
        }
    }

    pub(crate) fn encode_five(&self, relative_zxid: i64, to: &mut Writer<'_>) {
        self.encode_three(relative_zxid, to);
        for paths in [&self.persistent, &self.persistent_recursive] {
            to.texts(paths);
        }
    }

    fn decode_three(from: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self {
            data: from.texts()?,
            exist: from.texts()?,
            child: from.texts()?,
            ..Self::default()
        })
    }
}

pub(crate) fn decode_set(from: &mut Reader) -> Result<Request, DecodeError> {
    Ok(Request::SetWatches {
        relative_zxid: from.long()?,
        watches: SetWatches::decode_three(from)?,
    })
}

pub(crate) fn decode_set2(from: &mut Reader) -> Result<Request, DecodeError> {
    Ok(Request::SetWatches2 {
        relative_zxid: from.long()?,
        watches: {
            let mut watches = SetWatches::decode_three(from)?;
            watches.persistent = from.texts()?;
            watches.persistent_recursive = from.texts()?;
            watches
        },
    })
}

pub(crate) fn encode_path_and_number(path: &str, number: i32, to: &mut Writer<'_>) {
    to.text(path);
    to.int(number);
}

pub(crate) fn decode_add(from: &mut Reader) -> Result<Request, DecodeError> {
    Ok(Request::AddWatch {
        path: from.text()?,
        mode: from.int()?,
    })
}

pub(crate) fn decode_check(from: &mut Reader) -> Result<Request, DecodeError> {
    Ok(Request::CheckWatches {
        path: from.text()?,
        kind: from.int()?,
    })
}

pub(crate) fn decode_remove(from: &mut Reader) -> Result<Request, DecodeError> {
    Ok(Request::RemoveWatches {
        path: from.text()?,
        kind: from.int()?,
    })
}

/// Notification of a watch that fired.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Notification {
    /// Kind of the change, see [`event_type`].
    pub kind: i32,
    /// State of the client's session, see [`keeper_state`].
    pub state: i32,
    /// Path of the znode.
    pub path: String,
}

impl Notification {
    /// Appends the record.
    pub fn encode(&self, to: &mut Writer<'_>) {
        to.int(self.kind);
        to.int(self.state);
        to.text(&self.path);
    }

    /// Reads the record.
    pub fn decode(from: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self {
            kind: from.int()?,
            state: from.int()?,
            path: from.text()?,
        })
    }
}
