//! Attacks on locks: many tries, waiters, holds and renewals of one caller.

use anyhow::{Context, ensure};
use cli_support::http_client::Connection;
use serde_json::{Value, json};

use super::callers::PREFIX;
use super::floods::{FloodRequest, flood};
use super::{AttackContext, RETRY_PAUSE, SESSION_TTL_MS};

/// Requests of a batch, which is the limit.
const BATCH: usize = 128;

/// Connections with a batch at a time: together more requests than a node has permits for new work.
const BATCHERS: usize = 128;

/// The same for renewals: more than a node has permits for maintenance.
const RENEWERS: usize = 384;

/// Connections for each of which one waits with a whole batch, out of `--connections`.
const CONNECTIONS_PER_WAITER: usize = 8;

/// Locks that waiters wait for.
const AWAITED: usize = 32;

/// Contenders of a lock, which is the limit.
const CONTENDERS: usize = 20_000;

/// Locks that can be closed at a time, which is the limit.
const CLOSED: usize = 10_000;

/// Minimum time of a hold, for which a lock stays closed after its release.
const CLOSED_MS: u64 = 10_000;

/// Locks per request, which is the limit.
const LOCKS_PER_REQUEST: usize = 64;

/// Connections that acquire and release, with a session each.
const HOLDERS: usize = 3;

/// Body of a batch with a request for each number.
fn batch(request: impl Fn(usize) -> Value) -> String {
    let requests: Vec<Value> = (0..BATCH).map(request).collect();
    json!({ "requests": requests }).to_string()
}

/// Lets the administrator hold some locks, so that others wait for them; returns their names.
async fn hold_locks(context: &AttackContext, count: usize) -> anyhow::Result<Vec<String>> {
    let mut connection = context.admin.connect_patiently(0).await?;
    let session = context.open_session(&mut connection).await?;
    let names: Vec<String> = (0..count).map(|lock| format!("{PREFIX}/held-{lock}")).collect();
    let locks: Vec<Value> = names.iter().map(|name| json!({ "name": name })).collect();
    let body = json!({ "session": session, "locks": locks }).to_string();
    let answer = connection.send("POST", "/v1/multilock/acquire", &body).await?;
    ensure!(
        answer.status == 200,
        "acquiring the locks of the attack: {}",
        answer.json()
    );
    Ok(names)
}

/// Tries to acquire a held lock, many times at once.
pub async fn new_requests(context: &AttackContext) -> anyhow::Result<()> {
    let held = hold_locks(context, 1).await?;
    let path = format!("/v1/locks/{}/acquire", held[0]);
    let body = batch(|_| json!({ "path": path, "body": { "ttl_ms": SESSION_TTL_MS } }));
    flood(context, BATCHERS, &[FloodRequest::post("/v1/batch", body)]).await;
    Ok(())
}

/// Renews one lease, many times at once.
pub async fn renewals(context: &AttackContext) {
    context
        .repeat(1, RETRY_PAUSE, async |number| {
            let mut connection = context.callers.connect(number).await?;
            let acquire = format!("/v1/locks/{PREFIX}/lease/acquire");
            let body = json!({ "ttl_ms": SESSION_TTL_MS }).to_string();
            let leased = connection.send("POST", &acquire, &body).await?.json();
            let lease = leased["lease"].as_str().context("no lease was granted")?;
            let renew = format!("/v1/leases/{lease}/renew");
            let body = batch(|_| json!({ "path": renew }));
            flood(context, RENEWERS, &[FloodRequest::post("/v1/batch", body)]).await;
            let released = connection
                .send("DELETE", &format!("/v1/leases/{lease}"), "")
                .await?;
            ensure!(released.status == 204, "releasing the lease: {}", released.json());
            Ok(())
        })
        .await;
}

/// Waits for held locks, with a whole batch on each connection.
pub async fn waits(context: &AttackContext) -> anyhow::Result<()> {
    let held = hold_locks(context, AWAITED).await?;
    let waiters = (context.connections / CONNECTIONS_PER_WAITER).max(1);
    context
        .repeat(waiters, RETRY_PAUSE, async |number| {
            let mut connection = context.callers.connect(number).await?;
            let session = context.open_session(&mut connection).await?;
            let path = format!("/v1/locks/{}/acquire", held[number % held.len()]);
            let wait = json!({ "session": session, "wait_ms": null, "reentrant": false });
            let body = batch(|_| json!({ "path": path, "body": wait }));
            context.accepted_many(BATCH as u64);
            let answer = connection.send("POST", "/v1/batch", &body).await;
            context.ended(BATCH as u64);
            context.answered(&answer?);
            Ok(())
        })
        .await;
    Ok(())
}

/// Fills the queue of one lock with shared waiters, and grants it to all of them by one release.
pub async fn full(context: &AttackContext) {
    let acquire = format!("/v1/locks/{PREFIX}/queue/acquire");
    context
        .repeat(1, RETRY_PAUSE, async |number| {
            let mut connection = context.callers.connect(number).await?;
            let [holder, waiter] = [
                context.open_session(&mut connection).await?,
                context.open_session(&mut connection).await?,
            ];
            let body = json!({ "session": holder }).to_string();
            call(context, &mut connection, "POST", &acquire, &body).await?;
            let wait = json!({ "session": waiter, "mode": "shared", "wait": "queue", "reentrant": false });
            let body = batch(|_| json!({ "path": acquire, "body": wait }));
            for _ in 0..CONTENDERS.div_ceil(BATCH) {
                call(context, &mut connection, "POST", "/v1/batch", &body).await?;
            }
            for session in [holder, waiter] {
                close(context, &mut connection, &session).await?;
            }
            Ok(())
        })
        .await;
}

/// Acquires and releases locks that then stay closed.
pub async fn closed_locks(context: &AttackContext) {
    context
        .repeat(1, RETRY_PAUSE, async |number| {
            let mut connection = context.callers.connect(number).await?;
            let session = context.open_session(&mut connection).await?;
            for call_number in 0..CLOSED.div_ceil(BATCH) {
                let body = batch(|lock| {
                    json!({
                        "path": format!("/v1/locks/{PREFIX}/closed-{call_number}-{lock}/acquire"),
                        "body": { "session": session, "min_hold_ms": CLOSED_MS },
                    })
                });
                call(context, &mut connection, "POST", "/v1/batch", &body).await?;
            }
            close(context, &mut connection, &session).await?;
            Ok(())
        })
        .await;
}

/// Acquires and releases many locks, so that each node records many holds and events.
pub async fn holds(context: &AttackContext) {
    context
        .repeat(HOLDERS, RETRY_PAUSE, async |number| {
            let mut connection = context.callers.connect(number).await?;
            let session = context.open_session(&mut connection).await?;
            let lock = |at| json!({ "name": format!("{PREFIX}/cycled-{number}-{at}") });
            let locks: Vec<Value> = (0..LOCKS_PER_REQUEST).map(lock).collect();
            let acquire = json!({ "session": session, "locks": locks }).to_string();
            loop {
                let granted = call(
                    context,
                    &mut connection,
                    "POST",
                    "/v1/multilock/acquire",
                    &acquire,
                )
                .await?;
                let held = granted["holders"]
                    .as_array()
                    .context("the locks were not granted")?;
                let held = held
                    .iter()
                    .map(|grant| json!({ "lock": grant["lock"], "holder": grant["holder"] }));
                let release = json!({ "session": session, "holders": held.collect::<Vec<_>>() }).to_string();
                call(
                    context,
                    &mut connection,
                    "POST",
                    "/v1/multilock/release",
                    &release,
                )
                .await?;
            }
        })
        .await;
}

/// Closes a session.
async fn close(context: &AttackContext, connection: &mut Connection, session: &str) -> anyhow::Result<()> {
    let path = format!("/v1/sessions/{session}");
    call(context, connection, "DELETE", &path, "").await?;
    Ok(())
}

/// Sends a request and counts its answer, which it returns.
pub async fn call(
    context: &AttackContext,
    connection: &mut Connection,
    method: &str,
    path: &str,
    body: &str,
) -> anyhow::Result<Value> {
    let answer = connection.send(method, path, body).await?;
    context.answered(&answer);
    Ok(answer.json())
}
