//! Attacks in which one caller creates something large and then sends requests whose cost grows with its
//! size.

use anyhow::ensure;
use cli_support::http_client::{Connection, Response};
use serde_json::{Value, json};

use super::callers::PREFIX;
use super::floods::{FloodRequest, flood};
use super::queues::call;
use super::{AttackContext, RETRY_PAUSE};

/// Locks per request, which is the limit.
const LOCKS_PER_REQUEST: usize = 64;

/// Locks that a session acquires: most of the 100,000 ephemeral znodes that it may have.
const LOCKS: usize = 96_000;

/// Number of connections that read concurrently.
const READERS: usize = 8;

/// Times that each reads, before the session is closed.
const READS: usize = 6;

/// Acquires locks for a session until it holds [`LOCKS`] or the attack ends. Hands each answer to `seen`.
async fn acquire_locks(
    context: &AttackContext,
    connection: &mut Connection,
    session: &str,
    seen: impl Fn(&Response),
) -> anyhow::Result<()> {
    for number in 0..LOCKS / LOCKS_PER_REQUEST {
        if context.stop.is_cancelled() {
            break;
        }
        let lock = |at| json!({ "name": format!("{PREFIX}/{number}-{at}") });
        let locks: Vec<Value> = (0..LOCKS_PER_REQUEST).map(lock).collect();
        let body = json!({ "session": session, "locks": locks }).to_string();
        let answer = connection.send("POST", "/v1/multilock/acquire", &body).await?;
        seen(&answer);
        ensure!(answer.status == 200, "locks not acquired: {}", answer.status);
    }
    Ok(())
}

/// Opens a session, acquires locks, reads the session on several connections, and closes it; repeats that
/// until the attack ends.
pub async fn session(context: &AttackContext) {
    context
        .repeat(1, RETRY_PAUSE, async |_| {
            let mut connection = context.callers.connect(0).await?;
            let session = context.open_session(&mut connection).await?;
            let seen = |answer: &Response| context.answered(answer);
            acquire_locks(context, &mut connection, &session, seen).await?;
            let path = format!("/v1/sessions/{session}");
            let paths = [
                path.clone(),
                format!("{path}/ephemerals"),
                "/v1/sessions".to_owned(),
            ];
            let readers = (0..READERS).map(async |number| {
                let mut connection = context.callers.connect(number).await?;
                for path in paths.iter().cycle().take(READS) {
                    call(context, &mut connection, "GET", path, "").await?;
                }
                anyhow::Ok(())
            });
            futures_util::future::try_join_all(readers).await?;
            call(context, &mut connection, "DELETE", &path, "").await?;
            Ok(())
        })
        .await;
}

/// Reads small pages of the lists, while a session acquires many locks and keeps them. That session is the administrator's, so that also a
/// caller without rights can attack.
pub async fn lists(context: &AttackContext) -> anyhow::Result<()> {
    let mut connection = context.admin.connect_patiently(0).await?;
    let session = context.open_session(&mut connection).await?;
    let paths = ["/v1/locks?limit=1", "/v1/sessions?limit=1", "/v1/lock-graph"].map(FloodRequest::get);
    let (_, acquired) = tokio::join!(
        flood(context, READERS, &paths),
        acquire_locks(context, &mut connection, &session, |_| ())
    );
    acquired
}

/// Sends write requests without a session, each with a new request ID that the server has to store.
pub async fn request_ids(context: &AttackContext) -> anyhow::Result<()> {
    let znode = "/v1/znodes/attack/request-ids";
    let mut connection = context.admin.connect_patiently(0).await?;
    let created = connection
        .send("POST", znode, "{\"data\":\"x\",\"parents\":true}")
        .await?;
    ensure!(
        created.status < 300,
        "creating the znode of the attack: {}",
        created.json()
    );
    context
        .repeat(1, RETRY_PAUSE, async |number| {
            let mut connection = context.callers.connect(number).await?;
            for number in 0_u64.. {
                let body = json!({ "data": "x", "request_id": format!("attack-{number}") }).to_string();
                call(
                    context,
                    &mut connection,
                    "PUT",
                    &format!("{znode}?version=-1"),
                    &body,
                )
                .await?;
            }
            Ok(())
        })
        .await;
    let deleted = connection.send("DELETE", znode, "").await?;
    ensure!(
        deleted.status < 300,
        "deleting the znode of the attack: {}",
        deleted.json()
    );
    Ok(())
}
