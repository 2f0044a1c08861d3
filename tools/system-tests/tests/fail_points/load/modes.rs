//! Client of all lock operations beside acquire and release. Its locks have no other contenders, so every
//! unjustified rejection is a violation.

use std::sync::Arc;
use std::time::Duration;

use cli_support::api_client::{ApiClient, CallError, request_id};
use serde_json::{Value, json};

use super::{ANSWER_TIMEOUT, Ledger, PAUSE, open};

/// Wait of the second session in each round, which must time out.
const FAILING_WAIT_MS: u64 = 20;

/// Runs one round after the other.
pub async fn user(ledger: Arc<Ledger>, mut client: ApiClient) {
    let first = open(&ledger, &mut client, "modes").await;
    let second = open(&ledger, &mut client, "modes, rejected").await;
    for limit in (1_u64..=9).cycle() {
        let turn = ledger.turns.read().await;
        let round = round(&mut client, first.id(), second.id(), limit).await;
        if let Err(found) = round {
            ledger.violation(found);
        }
        drop(turn);
        tokio::time::sleep(PAUSE * 4).await;
    }
}

/// Description of a violation.
pub type Violation = String;

pub fn require(so: bool, what: impl FnOnce() -> Violation) -> Result<(), Violation> {
    if so { Ok(()) } else { Err(what()) }
}

async fn round(client: &mut ApiClient, first: &str, second: &str, limit: u64) -> Result<(), Violation> {
    upgrade_and_downgrade(client, first).await?;
    all_or_none(client, first, second).await?;
    let pool = "/v1/locks/fp%2Fpool";
    patch(client, pool, json!({ "limit": limit }))
        .await
        .map_err(|error| format!("no limit of {limit} can be set: {error}"))
}

/// Acquires in upgradeable mode, upgrades, and downgrades again, with a release request and its answer in
/// between.
async fn upgrade_and_downgrade(client: &mut ApiClient, session: &str) -> Result<(), Violation> {
    let call = async |client: &mut ApiClient, verb: &'static str, body: Value| {
        let path = format!("/v1/locks/fp/modes/{verb}");
        let told = format!("{path} {body}");
        post(client, &path, body)
            .await
            .map_err(|error| format!("{told}: {error}"))
    };
    let body = json!({ "session": session, "mode": "upgradeable" });
    let held = call(client, "acquire", body).await?;
    let holder = held["holder"].clone();
    let own = |more: Value| {
        let mut body = json!({ "session": session, "holder": holder });
        for (field, value) in more.as_object().into_iter().flatten() {
            body[field] = value.clone();
        }
        body
    };
    let alone = call(client, "upgrade", own(json!({}))).await?;
    let token = |grant: &Value| grant["fencing_token"].as_u64();
    require(
        alone["mode"] == "exclusive" && token(&alone) > token(&held),
        || format!("{held} was upgraded to {alone}"),
    )?;
    call(client, "release-request", json!({ "reason": "a test" })).await?;
    call(client, "release-request/reply", own(json!({ "answer": "soon" }))).await?;
    let back = call(client, "downgrade", own(json!({ "mode": "upgradeable" }))).await?;
    require(
        back["mode"] == "upgradeable" && token(&back) == token(&alone),
        || format!("{alone} was downgraded to {back}"),
    )?;
    call(client, "release", own(json!({}))).await.map(drop)
}

/// Acquires two locks at once, while another session waits for them until its timeout.
async fn all_or_none(client: &mut ApiClient, first: &str, second: &str) -> Result<(), Violation> {
    let path = "/v1/multilock/acquire";
    let locks = json!([{ "name": "fp/left" }, { "name": "fp/right", "mode": "shared" }]);
    let body = json!({ "session": first, "locks": locks });
    let held = post(client, path, body)
        .await
        .map_err(|error| format!("two locks without other contenders: {error}"))?;
    let holders = held["holders"].as_array().cloned().unwrap_or_default();
    let given: Vec<Value> = holders
        .iter()
        .map(|grant| json!({ "lock": grant["lock"], "holder": grant["holder"] }))
        .collect();
    let body = json!({ "session": second, "locks": locks, "wait_ms": FAILING_WAIT_MS });
    match post(client, path, body).await {
        Err(error) if error.code() == "lock_timeout" => {}
        Err(error) => return Err(format!("waiting for two held locks: {error}")),
        Ok(granted) => return Err(format!("{granted} was granted while {held} was held")),
    }
    let body = json!({ "session": first, "holders": given });
    let released = post(client, "/v1/multilock/release", body).await;
    let released = released.map_err(|error| format!("{held} cannot be released: {error}"))?;
    let holds: Vec<_> = released["released"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| one["holds"].as_u64())
        .collect();
    require(holds == [Some(0), Some(0)], || {
        format!("{held} was released as {released}")
    })
}

/// Sends an idempotent request.
pub async fn send(
    client: &mut ApiClient,
    method: &str,
    path: &str,
    mut body: Value,
) -> Result<Value, CallError> {
    body["request_id"] = request_id().into();
    let within = ANSWER_TIMEOUT + Duration::from_millis(FAILING_WAIT_MS);
    let response = client.call(method, path, &body, within).await?;
    Ok(match response.body.is_empty() {
        true => Value::Null,
        false => response.json(),
    })
}

pub async fn post(client: &mut ApiClient, path: &str, body: Value) -> Result<Value, CallError> {
    send(client, "POST", path, body).await
}

async fn patch(client: &mut ApiClient, path: &str, body: Value) -> Result<(), CallError> {
    send(client, "PATCH", path, body).await.map(drop)
}
