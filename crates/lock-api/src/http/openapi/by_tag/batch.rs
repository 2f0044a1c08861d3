//! Operation on several requests at once.

use axum::http::StatusCode;
use serde_json::json;

use super::LEASE;
use super::locks::grant;
use crate::http::batch::{BatchAnswer, BatchBody};
use crate::http::openapi::operation::Operation;

/// Returns the operations of this group.
pub fn operations() -> Vec<Operation> {
    vec![
        Operation::post("/v1/batch", "batch", "Executes several requests for locks, each with its own result")
            .describe("The requests are begun together, in no order, and do not depend on each other. The answer follows when the last of them has one.")
            .request_body::<BatchBody<'_>>(
                true,
                json!({"requests": [
                    {"path": "/v1/locks/orders%2F42/acquire", "body": {"ttl_ms": 60_000}},
                    {"method": "DELETE", "path": format!("/v1/leases/{LEASE}")},
                ]}),
            )
            .answers::<BatchAnswer>(
                StatusCode::OK,
                "The results, in the order of the requests.",
                json!({"results": [{"status": 200, "body": grant("exclusive")}, {"status": 204}]}),
            ),
    ]
}
