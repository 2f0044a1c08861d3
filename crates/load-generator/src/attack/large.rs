//! One caller that makes something large, and then asks for what costs as much as that is large.

use anyhow::{Context, ensure};
use cli_support::http_client::Connection;
use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::floods::{kind_of, together};
use super::{Got, Means};

/// Locks of one request: as many as there may be.
const LOCKS_AT_ONCE: usize = 64;

/// Locks that a session takes: most of the 100,000 ephemeral znodes that it may have.
const LOCKS: usize = 96_000;

/// Connections that ask at the same time.
const ASKERS: usize = 8;

/// A session with a connection of its own.
struct Large {
    connection: Connection,
    session: String,
}

impl Large {
    async fn open(means: &Means) -> anyhow::Result<Self> {
        let mut connection = means.callers.connect(0).await?;
        let answer = connection
            .send("POST", "/v1/sessions", "{\"ttl_ms\": 60000}")
            .await?;
        let opened = answer.json();
        let session = opened["session"]
            .as_str()
            .context("a session could not be opened")?;
        Ok(Self {
            session: session.to_owned(),
            connection,
        })
    }

    /// Takes locks until there are as many as wanted, or the attack is over.
    async fn grow(&mut self, means: &Means, got: &mut Got) -> anyhow::Result<()> {
        for call in 0..LOCKS / LOCKS_AT_ONCE {
            if means.over.is_cancelled() {
                return Ok(());
            }
            let lock = |number| json!({ "name": format!("attack/{call}-{number}") });
            let locks: Vec<Value> = (0..LOCKS_AT_ONCE).map(lock).collect();
            let body = json!({ "session": self.session, "locks": locks }).to_string();
            self.ask("POST", "/v1/multilock/acquire", &body, got).await?;
        }
        Ok(())
    }

    async fn ask(&mut self, method: &str, path: &str, body: &str, got: &mut Got) -> anyhow::Result<()> {
        got.tried += 1;
        let answer = self.connection.send(method, path, body).await?;
        if answer.status < 300 {
            got.let_in += 1;
        }
        got.answer(answer.status.to_string());
        Ok(())
    }

    fn path(&self) -> String {
        format!("/v1/sessions/{}", self.session)
    }
}

/// Opens a session, takes locks, asks for the session on several connections, and closes it; again and again.
pub async fn session(means: &Means) -> anyhow::Result<Got> {
    let mut got = Got::default();
    while !means.over.is_cancelled() {
        let mut large = Large::open(means).await?;
        large.grow(means, &mut got).await?;
        let path = large.path();
        let paths = vec![
            path.clone(),
            format!("{path}/ephemerals"),
            "/v1/sessions".to_owned(),
        ];
        let mut askers = JoinSet::new();
        for number in 0..ASKERS {
            askers.spawn_local(ask_for(means, number, paths.clone(), Some(6)).boxed_local());
        }
        got.add(together(askers).await?);
        large.ask("DELETE", &path, "", &mut got).await?;
    }
    Ok(got)
}

/// Takes locks, and asks for small pages of what there is until the attack is over.
pub async fn lists(means: &Means) -> anyhow::Result<Got> {
    let mut got = Got::default();
    let mut large = Large::open(means).await?;
    large.grow(means, &mut got).await?;
    let paths = ["/v1/locks?count=1", "/v1/sessions?count=1", "/v1/locks/graph"].map(str::to_owned);
    let mut askers = JoinSet::new();
    for number in 0..ASKERS {
        askers.spawn_local(ask_for(means, number, paths.to_vec(), None).boxed_local());
    }
    got.add(together(askers).await?);
    let path = large.path();
    large.ask("DELETE", &path, "", &mut got).await?;
    Ok(got)
}

/// Asks for these in turn, so many times or until the attack is over.
fn ask_for(
    means: &Means,
    number: usize,
    paths: Vec<String>,
    times: Option<usize>,
) -> impl Future<Output = Got> + use<> {
    let (nodes, over) = (means.callers.clone(), means.over.clone());
    async move {
        let mut got = Got::default();
        let mut connection = match nodes.connect(number).await {
            Ok(connection) => connection,
            Err(error) => {
                got.answer(kind_of(&error));
                return got;
            }
        };
        for path in paths.iter().cycle().take(times.unwrap_or(usize::MAX)) {
            let answer = tokio::select! {
                answer = connection.send("GET", path, "") => answer,
                () = over.cancelled() => return got,
            };
            got.tried += 1;
            match answer {
                Ok(answer) => {
                    got.let_in += u64::from(answer.status < 300);
                    got.answer(answer.status.to_string());
                }
                Err(error) => {
                    got.answer(kind_of(&error.into()));
                    return got;
                }
            }
        }
        got
    }
}

/// Makes requests without a session that are to be remembered, each under another id, as fast as they are answered.
pub async fn request_ids(means: &Means) -> anyhow::Result<Got> {
    let mut got = Got::default();
    let mut connection = means.callers.connect(0).await?;
    let mut number = 0_u64;
    while !means.over.is_cancelled() {
        let body = json!({ "data": "x", "request_id": format!("attack-{number}") }).to_string();
        let path = match number {
            0 => "/v1/znodes/attack-request-ids",
            _ => "/v1/znodes/attack-request-ids?version=-1",
        };
        let method = if number == 0 { "POST" } else { "PUT" };
        let answer = connection.send(method, path, &body).await?;
        got.tried += 1;
        got.let_in += u64::from(answer.status < 300);
        got.answer(answer.status.to_string());
        number += 1;
    }
    let answer = connection
        .send("DELETE", "/v1/znodes/attack-request-ids", "")
        .await?;
    ensure!(
        answer.status < 300,
        "the znode of the attack could not be deleted"
    );
    Ok(got)
}
