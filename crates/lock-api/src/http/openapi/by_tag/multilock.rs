//! Operations on several locks at once.

use axum::http::StatusCode;
use serde_json::json;

use super::locks::{NEW_CONTENDER, WAITS, grant};
use super::{CHANGE, GROWS, HOLDER, OF_SESSION, SESSION};
use crate::http::multilock::{AcquireBody, GrantsAnswer, ReleaseBody, ReleasedAnswer};
use crate::http::openapi::operation::Operation;
use crate::http::problem::Code;

/// Returns the operations of this group.
pub fn operations() -> Vec<Operation> {
    vec![
        Operation::post(
            "/v1/multilock/acquire",
            "acquireLocks",
            "Acquires several locks, all or none",
        )
        .describe("The locks can have different modes, and each lock is listed once. A waiting call enters all queues at the same position of the log.")
        .request_body::<AcquireBody<'_>>(
            true,
            json!({
                "session": SESSION,
                "locks": [{"name": "orders/42"}, {"name": "stock", "mode": "shared"}],
                "wait_ms": 5000,
            }),
        )
        .answers::<GrantsAnswer<'_>>(
            StatusCode::OK,
            "All locks are granted; the grants are in the order of the request.",
            json!({"holders": [grant("exclusive")]}),
        )
        .fails(&[Code::BadLockName, Code::RequestIdReused, Code::SequenceExhausted])
        .fails(&OF_SESSION)
        .fails(&WAITS)
        .fails(&NEW_CONTENDER)
        .fails(&CHANGE)
        .fails(&GROWS),
        Operation::post(
            "/v1/multilock/release",
            "releaseLocks",
            "Releases one hold of each of several locks",
        )
        .request_body::<ReleaseBody<'_>>(
            true,
            json!({"session": SESSION, "holders": [{"lock": "orders/42", "holder": HOLDER}]}),
        )
        .answers::<ReleasedAnswer<'_>>(
            StatusCode::OK,
            "Number of holds that remain of each; `null` if the session does not hold the lock.",
            json!({"released": [{"lock": "orders/42", "holder": HOLDER, "holds": 0}]}),
        )
        .fails(&[
            Code::BadLockName,
            Code::NotHolder,
            Code::RequestIdReused,
            Code::Forbidden,
        ])
        .fails(&OF_SESSION)
        .fails(&CHANGE),
    ]
}
