//! Operations on leases.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::{CHANGE, FRESH, HOLDER, LEASE};
use crate::http::extract::ReadQuery;
use crate::http::lease_types::{LeaseAnswer, RenewBody};
use crate::http::leases::ReleaseQuery;
use crate::http::openapi::operation::Operation;
use crate::http::openapi::words;
use crate::http::problem::Code;

/// Returns the operations of this group.
pub fn operations() -> Vec<Operation> {
    vec![
        one(Operation::post(
            "/v1/leases/{lease}/renew",
            "renewLease",
            "Renews a lease",
        ))
        .describe("The lease lives for its time to live from the sending of the request. A lease that waits in a queue has to be renewed as well.")
        .request_body::<RenewBody>(false, json!({"ttl_ms": 60_000}))
        .answers::<LeaseAnswer<'_>>(StatusCode::OK, "The lease is renewed.", lease())
        .fails(&CHANGE),
        one(Operation::delete(
            "/v1/leases/{lease}",
            "releaseLease",
            "Releases the lock of a lease, or leaves its queue",
        ))
        .query_parameters::<ReleaseQuery>(&[])
        .with_words::<words::RequestId>()
        .answers_nothing("The lease has ended. A repetition has the same answer.")
        .fails(&[Code::RequestIdReused])
        .fails(&CHANGE),
        one(Operation::get("/v1/leases/{lease}", "getLease", "Returns a lease"))
            .query_parameters::<ReadQuery>(&[])
            .answers::<LeaseAnswer<'_>>(StatusCode::OK, "The lease.", lease())
            .fails(&[Code::BadRequest])
            .fails(&FRESH),
    ]
}

fn one(operation: Operation) -> Operation {
    operation
        .names::<words::LeaseText>(
            "lease",
            "Which lease. The address is as secret as the lease.",
            json!(LEASE),
        )
        .fails(&[Code::LeaseExpired])
}

fn lease() -> Value {
    json!({
        "lock": "orders/42",
        "holder": HOLDER,
        "state": "holds",
        "mode": "exclusive",
        "fencing_token": 17,
        "note": "nightly report",
        "ttl_ms": 60_000,
        "expires_in_ms": 60_000,
    })
}
