//! Route and documents of a lock's history. The node decides which holds it retains; this module only returns them.

use axum::http::Uri;
use lock_node::lock_history::{End, HistoryGap, HoldRecord, Position};
use lock_node::{HistoryEntry, LockHistory};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use znode_store::{ContenderEnd, Hold, LockMode, LockName};

use super::Api;
use super::extract::{HandlerResult, Timestamp, ensure_freshness, ok, page_length, query};
use super::lock_types::trace_id;
use super::openapi::words;
use super::problem::mode_word;
use crate::locks::Locks;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct HistoryQuery {
    /// `next_cursor` of the page before: only holds with smaller fencing tokens.
    #[param(value_type = Option<words::Position>)]
    cursor: Option<u64>,
    #[param(value_type = Option<words::PageLimit>)]
    limit: Option<usize>,
    /// Wait until this node has applied everything that was committed before.
    #[serde(default)]
    linearizable: bool,
}

/// `GET /v1/locks/{name}/history`
pub async fn get(api: &Api, locks: Locks, uri: &Uri, lock: LockName) -> HandlerResult {
    let params: HistoryQuery = query(uri)?;
    let limit = page_length(params.limit)?;
    ensure_freshness(api, params.linearizable).await?;
    let history = locks.history(&lock, params.cursor, limit).await?;
    Ok(ok(&HistoryAnswer::new(&lock, &history)))
}

/// Answer of `GET /v1/locks/{name}/history`.
#[derive(Serialize, ToSchema)]
pub struct HistoryAnswer<'a> {
    #[schema(value_type = words::LockName)]
    lock: &'a str,
    /// Holds, the latest first.
    history: Vec<EntryAnswer<'a>>,
    /// Value of `cursor` for the next page; `null` on the last one.
    #[schema(required)]
    next_cursor: Option<String>,
    /// Periods from which holds may be missing.
    gaps: Vec<GapAnswer>,
    /// Time up to which ended holds are no longer retained; `null` if all are.
    #[schema(value_type = Option<words::Time>, required)]
    since_at: Option<Timestamp>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = HistoryEntry)]
pub struct EntryAnswer<'a> {
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
    #[schema(value_type = super::lock_types::ModeWord)]
    mode: &'static str,
    #[schema(value_type = Option<words::Limit>, required)]
    limit: Option<u32>,
    #[schema(value_type = words::Permits)]
    permits: u32,
    #[schema(value_type = words::FencingToken)]
    fencing_token: u64,
    /// Begin of the hold; `null` if this node did not see it.
    #[schema(value_type = Option<words::Time>, required)]
    from_at: Option<Timestamp>,
    /// End of the hold; `null` while it holds, and if this node did not see the end.
    #[schema(value_type = Option<words::Time>, required)]
    until_at: Option<Timestamp>,
    /// Cause of the end; `null` while it holds.
    #[schema(value_type = Option<words::EndOfHold>, required)]
    ended: Option<&'static str>,
    /// Reason of a break.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = words::Reason)]
    reason: Option<&'a str>,
    /// Principal that broke the hold or deleted its znode.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String)]
    by: Option<&'a str>,
    /// If this node did not see the end: the last time at which the hold is known to have existed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = words::Time)]
    last_held_at: Option<Timestamp>,
    /// If this node did not see the end: the first time at which the hold is known to be gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = words::Time)]
    gone_at: Option<Timestamp>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = HistoryGap)]
pub struct GapAnswer {
    #[schema(value_type = words::Time)]
    from_at: Timestamp,
    #[schema(value_type = words::Time)]
    until_at: Timestamp,
    /// Last position before the gap.
    #[schema(value_type = words::Zxid)]
    after_zxid: u64,
    /// Last position in the gap.
    #[schema(value_type = words::Zxid)]
    until_zxid: u64,
}

impl<'a> HistoryAnswer<'a> {
    fn new(lock: &'a LockName, history: &'a LockHistory) -> Self {
        let since = (history.since != Position::default()).then_some(Timestamp(history.since.time_ms));
        Self {
            lock: lock.as_str(),
            history: history.entries.iter().map(EntryAnswer::new).collect(),
            next_cursor: history.next_before.map(|token| token.to_string()),
            gaps: history.gaps.iter().map(GapAnswer::new).collect(),
            since_at: since,
        }
    }
}

impl<'a> EntryAnswer<'a> {
    fn new(entry: &'a HistoryEntry) -> Self {
        match entry {
            HistoryEntry::Open(hold) => Self::of(hold),
            HistoryEntry::Over(HoldRecord { hold, end }) => {
                let mut answer = Self::of(hold);
                answer.end(end);
                answer
            }
        }
    }

    fn of(hold: &'a Hold) -> Self {
        Self {
            holder: &hold.holder,
            session: hold.session.to_string(),
            session_name: &hold.session_name,
            owner: &hold.owner,
            note: &hold.note,
            address: hold.address.host(),
            trace_id: trace_id(&hold.address),
            mode: mode_word(hold.mode),
            limit: match hold.mode {
                LockMode::Semaphore { limit } => Some(limit),
                LockMode::Exclusive | LockMode::Shared | LockMode::Upgradeable => None,
            },
            permits: hold.permits,
            fencing_token: hold.fencing_token.0,
            from_at: hold.since_ms.map(Timestamp),
            until_at: None,
            ended: None,
            reason: None,
            by: None,
            last_held_at: None,
            gone_at: None,
        }
    }

    fn end(&mut self, end: &'a End) {
        match end {
            End::Known { at, how, by } => {
                self.until_at = Some(Timestamp(at.time_ms));
                self.by = by.as_deref();
                self.ended = Some(match how {
                    // The caller never received this grant, and the server released it.
                    ContenderEnd::Released
                    | ContenderEnd::Withdrawn
                    | ContenderEnd::NeverGrantable { .. }
                    | ContenderEnd::Forbidden => "released",
                    // The hold continues as another one, with another token.
                    ContenderEnd::Upgraded => "upgraded",
                    ContenderEnd::SessionClosed => "session_closed",
                    ContenderEnd::SessionExpired => "session_expired",
                    ContenderEnd::Broken { reason, .. } => {
                        self.reason = Some(reason);
                        "broken"
                    }
                    ContenderEnd::Deleted => "deleted",
                    ContenderEnd::MaxHold => "max_hold",
                });
            }
            End::Hidden {
                not_before,
                not_after,
            } => {
                self.ended = Some("unknown");
                self.last_held_at = Some(Timestamp(not_before.time_ms));
                self.gone_at = Some(Timestamp(not_after.time_ms));
            }
        }
    }
}

impl GapAnswer {
    fn new(gap: &HistoryGap) -> Self {
        Self {
            from_at: Timestamp(gap.after.time_ms),
            until_at: Timestamp(gap.until.time_ms),
            after_zxid: gap.after.zxid,
            until_zxid: gap.until.zxid,
        }
    }
}
