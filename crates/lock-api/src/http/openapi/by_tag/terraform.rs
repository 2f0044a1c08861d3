//! Operations for the HTTP backend of Terraform and OpenTofu.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::CHANGE;
use crate::http::openapi::operation::Operation;
use crate::http::openapi::words;
use crate::http::problem::Code;
use crate::http::terraform::{StateQuery, TerraformDone, TerraformLock};

/// Address of a state.
const STATE: &str = "/v1/terraform/states/{name}";

/// Address of its lock.
const LOCK: &str = "/v1/terraform/locks/{name}";

/// Returns the operations of this group.
pub fn operations() -> Vec<Operation> {
    vec![
        one(Operation::get(STATE, "getTerraformState", "Returns a state"))
            .describe("The read is linearizable.")
            .answers_in("application/octet-stream", "The state.", json!({"type": "string", "format": "binary"}))
            .fails(&[Code::NoZnode, Code::Unavailable]),
        one(Operation::post(
            STATE,
            "updateTerraformState",
            "Writes a state",
        ))
        .describe("With `ID` the state is written only if the lock with this ID is held, and without it only if nobody holds the lock.")
        .query_parameters::<StateQuery>(&[])
        .request_body::<words::TerraformState>(false, state())
        .answers::<TerraformDone>(StatusCode::OK, "The state is written.", json!({}))
        .answers::<TerraformLock<'_>>(StatusCode::LOCKED, "Another caller holds the lock: its description.", held())
        .fails(&[Code::NotHolder, Code::NamespaceQuotaExceeded,
            Code::TooManyRequests, Code::LimitReached, Code::ReadOnly])
        .fails(&CHANGE),
        one(Operation::delete(
            STATE,
            "deleteTerraformState",
            "Deletes a state",
        ))
        .query_parameters::<StateQuery>(&[])
        .answers::<TerraformDone>(StatusCode::OK, "The state is deleted.", json!({}))
        .answers::<TerraformLock<'_>>(StatusCode::LOCKED, "Another caller holds the lock: its description.", held())
        .fails(&[Code::NotHolder, Code::NoZnode, Code::NotEmpty])
        .fails(&CHANGE),
        one(Operation::post(LOCK, "lockTerraformState", "Locks a state"))
            .describe("The lock is a lease of 24 hours, or of the longest time that the node allows. A repetition with the same `ID` succeeds. \
                The method `LOCK`, the default of Terraform, is accepted as well.")
            .request_body::<TerraformLock<'_>>(true, held())
            .answers::<TerraformDone>(StatusCode::OK, "The lock is held.", json!({}))
            .answers::<TerraformLock<'_>>(StatusCode::LOCKED, "Another caller holds the lock: its description.", held())
            .fails(&[Code::LockBusy, Code::Draining, Code::NamespaceQuotaExceeded,
            Code::TooManyRequests, Code::ReadOnly])
            .fails(&CHANGE),
        one(Operation::delete(
            LOCK,
            "unlockTerraformState",
            "Unlocks a state",
        ))
        .describe("With the description of the lock as its body, which must have the `ID` of the holder. Without a body, as `terraform force-unlock` sends it, \
            the lock is broken, which needs the right to. The method `UNLOCK`, the default of Terraform, is accepted as well.")
        .request_body::<TerraformLock<'_>>(false, held())
        .answers::<TerraformDone>(StatusCode::OK, "Nobody holds the lock by this ID.", json!({}))
        .answers::<TerraformLock<'_>>(StatusCode::LOCKED, "Another caller holds the lock: its description.", held())
        .fails(&CHANGE),
    ]
}

fn one(operation: Operation) -> Operation {
    operation
        .names::<words::LockName>(
            "name",
            "Name of the lock, and path of the znode below the root.",
            json!("orders/42"),
        )
        .fails(&[Code::BadLockName, Code::Forbidden, Code::BadRequest])
}

fn state() -> Value {
    json!({"version": 4, "serial": 7, "lineage": "0d5a", "resources": []})
}

fn held() -> Value {
    json!({
        "ID": "7d3f7ab6-1f0b-4bd6-6d2e-5a7a5f8e0c11",
        "Operation": "OperationTypeApply",
        "Info": "",
        "Who": "ci@runner-7",
        "Version": "1.11.4",
        "Created": "2026-11-27T16:00:00.000Z",
        "Path": "",
    })
}
