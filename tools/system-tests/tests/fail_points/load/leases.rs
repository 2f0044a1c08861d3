//! Client of leases, of a wait in the queue without a connection, and of a hold with a maximum time. Its locks have no other
//! contenders, so every unjustified rejection is a violation.

use std::sync::Arc;

use cli_support::api_client::{ApiClient, request_id};
use serde_json::{Value, json};

use super::modes::{Violation, post, require};
use super::{ANSWER_TIMEOUT, KEPT_TTL, Ledger, PAUSE};

/// Maximum time of the holds that end by it.
const MAX_HOLD_MS: u64 = 50;

/// Maximum wait of one long poll for a grant.
const POLL_MS: u64 = 1_000;

/// Long polls before a grant is missed.
const POLLS: usize = 20;

/// Runs one round after the other.
pub async fn user(ledger: Arc<Ledger>, mut client: ApiClient) {
    for number in 0_u64.. {
        let turn = ledger.turns.read().await;
        if let Err(found) = round(&mut client, number).await {
            ledger.violation(found);
        }
        drop(turn);
        tokio::time::sleep(PAUSE * 4).await;
    }
}

/// Acquires a lock by a lease, renews it, hands the lock over to a second lease that waits in the queue, and releases that.
async fn round(client: &mut ApiClient, number: u64) -> Result<(), Violation> {
    let ttl_ms = KEPT_TTL.as_millis() as u64;
    let lock = format!("/v1/locks/fp%2Fleased%2F{number}");
    let acquire = async |client: &mut ApiClient| {
        let body = json!({ "ttl_ms": ttl_ms, "wait": "queue" });
        let answer = post(client, &format!("{lock}/acquire"), body).await;
        answer.map_err(|error| format!("{lock} by a lease: {error}"))
    };
    let first = acquire(client).await?;
    require(first["fencing_token"].is_u64(), || {
        format!("{lock} was free: {first}")
    })?;
    let renewal = json!({ "ttl_ms": ttl_ms + 5_000 });
    let renewed = post(client, &format!("{}/renew", address(&first)), renewal).await;
    let renewed = renewed.map_err(|error| format!("the renewal of {first}: {error}"))?;
    require(renewed["state"] == "holds", || {
        format!("{first} was renewed as {renewed}")
    })?;
    let second = acquire(client).await?;
    require(second["position"] == 1, || format!("{lock} was held: {second}"))?;
    release(client, &first).await?;
    let granted = granted(client, &lock, &second).await?;
    require(
        granted["fencing_token"].as_u64() > first["fencing_token"].as_u64(),
        || format!("{first} was followed by {granted}"),
    )?;
    release(client, &second).await?;

    let body = json!({ "ttl_ms": ttl_ms, "max_hold_ms": MAX_HOLD_MS });
    let bounded = post(
        client,
        &format!("/v1/locks/fp%2Fbounded%2F{number}/acquire"),
        body,
    )
    .await;
    bounded
        .map(drop)
        .map_err(|error| format!("fp/bounded/{number}: {error}"))
}

fn address(answer: &Value) -> String {
    format!("/v1/leases/{}", answer["lease"].as_str().unwrap_or_default())
}

/// Polls for the grant of a lease that waits in the queue.
async fn granted(client: &mut ApiClient, lock: &str, place: &Value) -> Result<Value, Violation> {
    let holder = place["holder"].as_str().unwrap_or_default();
    let path = format!("{lock}/holders/{holder}?wait_ms={POLL_MS}");
    for _ in 0..POLLS {
        let answer = client.call("GET", &path, &Value::Null, ANSWER_TIMEOUT).await;
        let answer = answer.map_err(|error| format!("the place {place}: {error}"))?;
        if !answer.body.is_empty() {
            return Ok(answer.json());
        }
    }
    Err(format!("the place {place} was not granted the lock"))
}

async fn release(client: &mut ApiClient, answer: &Value) -> Result<(), Violation> {
    let path = format!("{}?request_id={}", address(answer), request_id());
    let released = client.call("DELETE", &path, &Value::Null, ANSWER_TIMEOUT).await;
    released
        .map(drop)
        .map_err(|error| format!("{answer} cannot be released: {error}"))
}
