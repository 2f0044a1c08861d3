//! Lists of locks: the numbers of holders and waiters of each, and optionally its first holder.

use std::sync::Arc;

use serde::Serialize;
use utoipa::ToSchema;
use znode_store::{Hold, LockName, LockSummary, Store};

use super::{ModeWord, trace_id};
use crate::http::extract::Timestamp;
use crate::http::openapi::words;
use crate::http::problem::mode_word;

/// Answer of `GET /v1/locks`.
#[derive(Serialize, ToSchema)]
pub struct LocksAnswer<'a> {
    /// Locks, by name.
    pub locks: Vec<SummaryAnswer<'a>>,
    /// Value of `cursor` for the next page; `null` on the last one.
    #[schema(value_type = Option<words::LockName>, required)]
    pub next_cursor: Option<&'a str>,
}

/// One lock in a list.
#[derive(Serialize, ToSchema)]
pub struct SummaryAnswer<'a> {
    #[schema(value_type = words::LockName)]
    lock: &'a str,
    #[schema(value_type = Option<ModeWord>, required)]
    mode: Option<&'static str>,
    /// Number of holders.
    holders: u32,
    /// Number of waiters.
    waiters: u32,
    /// The first holder, if requested and present.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = FirstHolderAnswer<'a>)]
    first_holder: Option<FirstHolderAnswer<'a>>,
}

/// First holder of a lock.
#[derive(Serialize, ToSchema)]
#[schema(as = FirstHolder)]
pub struct FirstHolderAnswer<'a> {
    #[schema(value_type = words::Holder)]
    holder: &'a str,
    #[schema(value_type = words::SessionId)]
    session: String,
    #[schema(value_type = words::SessionName)]
    session_name: &'a str,
    #[schema(value_type = words::Owner)]
    owner: &'a str,
    #[schema(value_type = words::Note)]
    note: &'a str,
    #[schema(value_type = words::Address)]
    address: &'a str,
    /// Trace of its acquire, if that was traced.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = words::TraceId)]
    trace_id: Option<String>,
    #[schema(value_type = words::FencingToken)]
    fencing_token: u64,
    /// Time of the acquire; `null` if it is unknown, as for some ZooKeeper clients.
    #[schema(value_type = Option<words::Time>, required)]
    since_at: Option<Timestamp>,
}

/// A lock in a list, optionally with its first holder.
pub struct SeenLock {
    pub summary: LockSummary,
    pub first: Option<Arc<Hold>>,
}

impl SeenLock {
    /// Describes the state of a lock, in use or not.
    pub fn now(store: &Store, lock: &LockName) -> Self {
        let unused = || LockSummary {
            lock: lock.clone(),
            mode: None,
            holders: 0,
            waiters: 0,
        };
        Self::with_holder(store, store.lock_summary(lock).unwrap_or_else(unused))
    }

    /// Describes a lock and its first holder.
    pub fn with_holder(store: &Store, summary: LockSummary) -> Self {
        let first = store.first_holds_of(&summary.lock, 1).pop();
        Self { summary, first }
    }
}

impl From<LockSummary> for SeenLock {
    fn from(summary: LockSummary) -> Self {
        let first = None;
        Self { summary, first }
    }
}

impl<'a> From<&'a SeenLock> for SummaryAnswer<'a> {
    fn from(SeenLock { summary, first }: &'a SeenLock) -> Self {
        Self {
            lock: summary.lock.as_str(),
            mode: summary.mode.map(mode_word),
            holders: summary.holders,
            waiters: summary.waiters,
            first_holder: first.as_deref().map(|hold| FirstHolderAnswer {
                holder: &hold.holder,
                session: hold.session.to_string(),
                session_name: &hold.session_name,
                owner: &hold.owner,
                note: &hold.note,
                address: hold.address.host(),
                trace_id: trace_id(&hold.address),
                fencing_token: hold.fencing_token.0,
                since_at: hold.since_ms.map(Timestamp),
            }),
        }
    }
}
