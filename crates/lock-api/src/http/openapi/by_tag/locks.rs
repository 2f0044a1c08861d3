//! Operations on single locks.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::{CHANGE, FRESH, GROWS, HOLDER, OF_SESSION, SESSION};
use crate::http::history::{HistoryAnswer, HistoryQuery};
use crate::http::lock_types::{
    AcquireBody, BreakBody, CheckAnswer, ConfigureBody, DowngradeBody, GrantAnswer, GraphAnswer, LockAnswer,
    LocksAnswer, QueuedAnswer, ReleaseAnswer, ReleaseBody, ReleaseReplyBody, ReleaseRequestBody,
    RequestedAnswer, UpgradeBody,
};
use crate::http::locks::{CheckQuery, GetQuery, GraphQuery, HolderQuery, ListQuery};
use crate::http::openapi::operation::Operation;
use crate::http::openapi::words;
use crate::http::problem::Code;

/// Failures of a call that waits in a queue, for one lock or several.
pub const WAITS: [Code; 5] = [
    Code::LockBusy,
    Code::LockTimeout,
    Code::WouldDeadlock,
    Code::NotHolder,
    Code::ModeConflict,
];

/// Failures of a new contender.
pub const NEW_CONTENDER: [Code; 7] = [
    Code::Forbidden,
    Code::Draining,
    Code::NoChildrenForEphemerals,
    Code::QuotaExceeded,
    Code::NamespaceQuotaExceeded,
    Code::LimitReached,
    Code::TooManyRequests,
];

/// Returns the operations of this group.
pub fn operations() -> Vec<Operation> {
    let mut all = changes();
    all.extend(reads());
    all
}

fn changes() -> Vec<Operation> {
    vec![
        one(Operation::post("/v1/locks/{name}/acquire", "acquireLock", "Acquires a lock, or waits in its queue"))
            .describe(
                "The answer follows when the lock is granted, or when `wait_ms` have passed. A caller that hangs up leaves the queue. `limit` and `permits` belong to the mode `semaphore`, which is never `reentrant`. Without `session` the lock is acquired in a lease with a time to live (`ttl_ms`), which the answer names.",
            )
            .request_body::<AcquireBody<'_>>(
                true,
                json!({"session": SESSION, "wait_ms": 5000, "note": "nightly report"}),
            )
            .answers::<GrantAnswer<'_>>(StatusCode::OK, "The lock is granted.", grant("exclusive"))
            .answers::<QueuedAnswer<'_>>(
                StatusCode::ACCEPTED,
                "Only with `\"wait\": \"queue\"`: the lock is not free, and this is the place in the queue.",
                json!({"lock": "orders/42", "holder": HOLDER, "position": 1}),
            )
            .fails(&OF_SESSION)
            .fails(&WAITS)
            .fails(&NEW_CONTENDER)
            .fails(&[Code::RequestIdReused, Code::SequenceExhausted, Code::LeaseExpired])
            .fails(&CHANGE)
            .fails(&GROWS),
        one(Operation::post("/v1/locks/{name}/release", "releaseLock", "Releases one hold"))
            .request_body::<ReleaseBody<'_>>(true, json!({"session": SESSION, "holder": HOLDER}))
            .answers::<ReleaseAnswer>(
                StatusCode::OK,
                "Number of holds that remain: 0 if the holder is gone.",
                json!({"holds": 0}),
            )
            .fails(&OF_SESSION)
            .fails(&OF_HOLDER)
            .fails(&CHANGE),
        one(Operation::post("/v1/locks/{name}/downgrade", "downgradeLock", "Downgrades a hold"))
            .describe("From `exclusive` or `upgradeable`, without a gap. The fencing token stays.")
            .request_body::<DowngradeBody<'_>>(true, json!({"session": SESSION, "holder": HOLDER, "mode": "shared"}))
            .answers::<GrantAnswer<'_>>(StatusCode::OK, "The hold has the new mode.", grant("shared"))
            .fails(&OF_SESSION)
            .fails(&OF_HOLDER)
            .fails(&[Code::ModeConflict])
            .fails(&CHANGE),
        one(Operation::post("/v1/locks/{name}/upgrade", "upgradeLock", "Upgrades a hold from upgradeable to exclusive"))
            .describe("Granted when the other shared holders have released the lock, with a fencing token that is larger than all before.")
            .request_body::<UpgradeBody<'_>>(true, json!({"session": SESSION, "holder": HOLDER, "wait_ms": 5000}))
            .answers::<GrantAnswer<'_>>(StatusCode::OK, "The hold is exclusive.", grant("exclusive"))
            .fails(&OF_SESSION)
            .fails(&OF_HOLDER)
            .fails(&[Code::Forbidden, Code::TooManyRequests])
            .fails(&WAITS)
            .fails(&CHANGE),
        one(Operation::post("/v1/locks/{name}/release-request", "requestRelease", "Sends a release request to holders"))
            .describe("The request is for one `holder`, or for all. Each holder decides if it releases the lock, and may reply.")
            .request_body::<ReleaseRequestBody<'_>>(true, json!({"reason": "disk is being replaced"}))
            .answers::<RequestedAnswer>(StatusCode::OK, "Number of holders that received the release request.", json!({"asked": 1}))
            .fails(&OF_HOLDER)
            .fails(&[Code::Forbidden, Code::TooManyRequests])
            .fails(&CHANGE),
        one(Operation::post("/v1/locks/{name}/release-request/reply", "replyToReleaseRequest", "Replies to a release request"))
            .request_body::<ReleaseReplyBody<'_>>(
                true,
                json!({"session": SESSION, "holder": HOLDER, "answer": "in a minute"}),
            )
            .answers_nothing("The reply is recorded and shown in the lock's view.")
            .fails(&OF_SESSION)
            .fails(&OF_HOLDER)
            .fails(&CHANGE),
        one(Operation::post("/v1/locks/{name}/break", "breakLock", "Removes a holder or a waiter by force"))
            .describe("For administrators. If the contender waits, its caller gets `not_holder`, with `by` and `reason`.")
            .request_body::<BreakBody<'_>>(true, json!({"holder": HOLDER, "reason": "its host has burnt down"}))
            .answers_nothing("The contender is removed.")
            .fails(&OF_HOLDER)
            .fails(&[Code::Forbidden])
            .fails(&CHANGE),
        one(Operation::patch("/v1/locks/{name}", "configureLock", "Configures a lock, independent of its holders"))
            .describe("Absent fields keep their values. The settings are kept while the lock is not in use.")
            .request_body::<ConfigureBody<'_>>(false, json!({"limit": 20}))
            .answers_nothing("The settings are in effect.")
            .fails(&[
                Code::Forbidden,
                Code::ModeConflict,
                Code::NoChildrenForEphemerals,
                Code::QuotaExceeded,
                Code::NamespaceQuotaExceeded,
                Code::LimitReached,
                Code::RequestIdReused,
            ])
            .fails(&CHANGE)
            .fails(&GROWS),
    ]
}

fn reads() -> Vec<Operation> {
    vec![
        one(Operation::get(
            "/v1/locks/{name}",
            "getLock",
            "Shows a lock: its holders and its waiters",
        ))
        .describe("A lock that was not used for a minute is swept: `no_lock` means that it is free.")
        .query_parameters::<GetQuery>(&[])
        .with_words::<words::MostContenders>()
        .answers::<LockAnswer<'_>>(StatusCode::OK, "The lock.", lock())
        .fails(&[Code::NoLock, Code::Forbidden])
        .fails(&FRESH),
        one(Operation::get(
            "/v1/locks/{name}/holders/{holder}",
            "awaitGrant",
            "Waits for the grant of a contender in the queue",
        ))
        .describe("For a place that was taken with `\"wait\": \"queue\"`. The wait has no influence on the place. Needs the right to lock or to read the lock.")
        .names::<words::Holder>("holder", "Which contender.", json!(HOLDER))
        .query_parameters::<HolderQuery>(&[])
        .with_words::<words::GrantWaitMs>()
        .answers::<GrantAnswer<'_>>(StatusCode::OK, "The contender holds the lock.", grant("exclusive"))
        .answers_nothing("The time is over, and the contender still waits.")
        .fails(&[Code::HolderGone, Code::Forbidden])
        .fails(&FRESH),
        one(Operation::get(
            "/v1/locks/{name}/check",
            "checkFencingToken",
            "Checks a fencing token against the current holders",
        ))
        .describe("The check is always linearizable.")
        .query_parameters::<CheckQuery>(&[("fencing_token", json!(17))])
        .with_words::<words::Position>()
        .answers::<CheckAnswer>(
            StatusCode::OK,
            "`held` is `true` if a holder had the token when the request arrived, or later.",
            json!({"held": true}),
        )
        .fails(&[Code::Forbidden])
        .fails(&FRESH),
        one(Operation::get(
            "/v1/locks/{name}/history",
            "lockHistory",
            "Lists past and present holds of a lock",
        ))
        .describe("The history is local to this node. It is for people, and the cluster does not use it for decisions.")
        .query_parameters::<HistoryQuery>(&[])
        .with_words::<words::PageLimit>()
        .with_words::<words::Position>()
        .answers::<HistoryAnswer<'_>>(
            StatusCode::OK,
            "A page of holds, the latest first.",
            json!({"lock": "orders/42", "history": [], "next_cursor": null, "gaps": [], "since_at": null}),
        )
        .fails(&[Code::NoHistory, Code::Forbidden])
        .fails(&FRESH),
        Operation::get("/v1/locks", "listLocks", "Lists locks")
            .describe("The list has the locks that the caller may read, so a page may be shorter than `limit`.")
            .query_parameters::<ListQuery>(&[("prefix", json!("orders/"))])
            .with_words::<words::PageLimit>()
            .answers::<LocksAnswer<'_>>(
                StatusCode::OK,
                "A page of locks, by name.",
                json!({
                    "locks": [{"lock": "orders/42", "mode": "exclusive", "holders": 1, "waiters": 0}],
                    "next_cursor": null,
                }),
            )
            .fails(&FRESH),
        Operation::get(
            "/v1/lock-graph",
            "waitGraph",
            "Shows the wait graph",
        )
        .query_parameters::<GraphQuery>(&[])
        .answers::<GraphAnswer<'_>>(
            StatusCode::OK,
            "The waiting contenders; `complete` is `false` if there are more.",
            json!({"waits": [], "complete": true}),
        )
        .fails(&FRESH),
    ]
}

/// Failures of a holder's operations.
const OF_HOLDER: [Code; 3] = [Code::NoLock, Code::NotHolder, Code::RequestIdReused];

fn one(operation: Operation) -> Operation {
    operation
        .names::<words::LockName>(
            "name",
            "Name of the lock, percent-encoded, including its slashes: `orders%2F42`. Slashes need no encoding unless the last part of the name is a verb.",
            json!("orders/42"),
        )
        .fails(&[Code::BadLockName])
}

/// Builds a grant for examples.
pub fn grant(mode: &str) -> Value {
    json!({
        "lock": "orders/42",
        "mode": mode,
        "holder": HOLDER,
        "fencing_token": 17,
        "holds": 1,
        "permits": 1,
    })
}

fn lock() -> Value {
    json!({
        "lock": "orders/42",
        "mode": "exclusive",
        "limit": null,
        "draining": false,
        "closed": null,
        "holders": [{
            "holder": HOLDER,
            "session": SESSION,
            "session_name": "worker-7",
            "owner": "",
            "note": "nightly report",
            "mode": "exclusive",
            "permits": 1,
            "holds": 1,
            "fencing_token": 17,
            "since_at": "2026-01-31T09:30:00.000Z",
            "address": "10.0.0.7:41516",
            "lock_delay_ms": 0,
        }],
        "queue": [],
    })
}
