//! Driver of the clients' conformance suite over `lock-client`. `clients/conformance/PROTOCOL.md` has the protocol.
//!
//! A program opens the sessions of `lock-client` itself, so the driver opens one at the first command that needs it, and another one after a
//! loss. The rest translates: `locks.rs` the commands about locks, `tree.rs` those about leases, elections and znodes.

mod locks;
mod output;
mod tree;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lock_client::{ClientTls, LockClient, LockSession, Token, TokenFile};
use lock_client_fake::FakeCluster;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio_util::sync::CancellationToken;

use crate::locks::{End, Grant};
use crate::output::{Failure, Log, say};

/// Parts that the client, or its language, does not have, by the numbers of behaviours and the options of commands.
const UNSUPPORTED: &[(&str, &str)] = &[("poll", "lock-client waits for locks of sessions on a connection")];

/// Command of the suite: the union of the fields of all commands.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Command {
    id: u64,
    r#do: String,
    client: String,
    r#as: String,
    servers: Vec<String>,
    ttl_ms: Option<u64>,
    name: Option<String>,
    patience_ms: Option<u64>,
    at_leader: bool,
    ca_file: Option<String>,
    cert_file: Option<String>,
    key_file: Option<String>,
    token: Option<String>,
    token_file: Option<String>,
    traceparent: Option<String>,
    fake: bool,
    queue: bool,
    reason: String,
    lock: String,
    locks: Vec<WantedLock>,
    wait_ms: Option<u64>,
    mode: Option<String>,
    limit: Option<u32>,
    permits: Option<u32>,
    owner: Option<String>,
    note: Option<String>,
    min_hold_ms: Option<u64>,
    max_hold_ms: Option<u64>,
    command: u64,
    hold: bool,
    raise: Option<String>,
    every_ms: u64,
    answer: String,
    lease: String,
    leases: Vec<String>,
    election: String,
    candidate: String,
    to: String,
    path: String,
    data: String,
    version: Option<i32>,
    parents: bool,
    kind: String,
    timeout_ms: u64,
    workers: usize,
    seconds: f64,
}

/// One of several locks.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WantedLock {
    lock: String,
    mode: Option<String>,
    limit: Option<u32>,
    permits: Option<u32>,
}

/// Outcome of a command.
type Reply = Result<Value, Failure>;

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Client with the session of its locks.
struct Opened {
    client: LockClient,
    /// Cluster in memory, if there is no other.
    fake: Option<FakeCluster>,
    ttl: Duration,
    name: String,
    session: tokio::sync::Mutex<Option<LockSession>>,
}

impl Opened {
    fn new(command: &Command) -> Result<Self, Failure> {
        let fake = command.fake.then(FakeCluster::new);
        let mut builder = match &fake {
            Some(fake) => fake.builder(),
            None => LockClient::builder(&command.servers).at_leader(command.at_leader),
        };
        if let Some(patience) = command.patience_ms {
            builder = builder.patience(millis(patience));
        }
        if let Some(ca) = &command.ca_file {
            let own = command.cert_file.as_deref().zip(command.key_file.as_deref());
            let own = own.map(|(cert, key)| (Path::new(cert), Path::new(key)));
            builder = builder.tls(ClientTls::new(Path::new(ca), own).map_err(Failure::usage)?);
        }
        if let Some(token) = &command.token {
            builder = builder.token(Token::parse(token).map_err(Failure::usage)?);
        }
        if let Some(file) = &command.token_file {
            builder = builder.token(TokenFile::open(file).map_err(Failure::usage)?);
        }
        if let Some(context) = command.traceparent.clone() {
            builder = builder.traceparent(move || Some(context.clone()));
        }
        Ok(Self {
            client: builder.build().map_err(Failure::usage)?,
            fake,
            ttl: millis(command.ttl_ms.unwrap_or(10_000)),
            name: command.name.clone().unwrap_or_default(),
            session: tokio::sync::Mutex::new(None),
        })
    }

    /// Returns the session. Opens one at the first call, and after a loss.
    async fn session(&self) -> Result<LockSession, Failure> {
        let mut session = self.session.lock().await;
        if let Some(open) = session.as_ref().filter(|open| !open.is_lost()) {
            return Ok(open.clone());
        }
        let opened = self
            .client
            .session()
            .ttl(self.ttl)
            .name(&self.name)
            .open()
            .await?;
        Ok(session.insert(opened).clone())
    }

    async fn close(&self) -> Result<(), Failure> {
        if let Some(session) = self.session.lock().await.take() {
            session.close().await?;
        }
        self.client.shut_down().await;
        Ok(())
    }
}

/// Returns the counts of a client as a flat object.
fn metrics(client: &LockClient) -> Value {
    let stats = client.stats();
    let mut counts = json!(stats);
    counts["lost"] = stats.lost.values().sum::<u64>().into();
    counts
}

/// Driver.
#[derive(Default)]
struct Driver {
    log: Log,
    clients: Mutex<HashMap<String, Arc<Opened>>>,
    grants: Mutex<HashMap<String, Grant>>,
    ends: Mutex<HashMap<String, End>>,
    running: Mutex<HashMap<u64, CancellationToken>>,
}

impl Driver {
    fn client(&self, command: &Command) -> Result<Arc<Opened>, Failure> {
        let found = self.clients.lock().get(&command.client).cloned();
        found.ok_or_else(|| Failure::usage(format!("there is no client {:?}", command.client)))
    }

    async fn execute(self: &Arc<Self>, command: &Command) -> Reply {
        match command.r#do.as_str() {
            "open" => {
                let opened = Arc::new(Opened::new(command)?);
                self.clients.lock().insert(command.client.clone(), opened);
                Ok(json!({}))
            }
            "session" => {
                let opened = self.client(command)?;
                let session = opened.session.lock().await;
                let open = session.as_ref().filter(|open| !open.is_lost());
                Ok(open.map_or_else(
                    || json!({ "session": null }),
                    |open| json!({ "session": open.id(), "ttl_ms": open.ttl().as_millis() }),
                ))
            }
            "close" => self.client(command)?.close().await.map(|()| json!({})),
            "metrics" => Ok(metrics(&self.client(command)?.client)),
            "fake_break" | "fake_expire" => {
                let opened = self.client(command)?;
                let fake = opened
                    .fake
                    .as_ref()
                    .ok_or_else(|| Failure::usage("it is no fake"))?;
                match command.r#do.as_str() {
                    "fake_break" => drop(fake.break_lock(&command.lock, &command.reason)),
                    _ => fake.expire_sessions(),
                }
                Ok(json!({}))
            }
            "logs" => Ok(json!({ "lines": self.log.lines() })),
            "cancel" => {
                if let Some(running) = self.running.lock().get(&command.command) {
                    running.cancel();
                }
                Ok(json!({}))
            }
            "cycle" => self.cycle(command).await,
            "acquire" | "acquire_many" | "release" | "check" | "verify" | "upgrade" | "downgrade"
            | "block" | "end_block" | "work" | "reply_release" => self.locks(command).await,
            _ => self.tree(command).await,
        }
    }

    async fn run(self: Arc<Self>, line: String) {
        let command: Command = match serde_json::from_str(&line) {
            Ok(command) => command,
            Err(error) => {
                let id = serde_json::from_str::<Value>(&line).map(|line| line["id"].clone());
                let error = Failure::usage(error).document();
                return say(&json!({ "id": id.unwrap_or_default(), "error": error }));
            }
        };
        let cancelled = CancellationToken::new();
        self.running.lock().insert(command.id, cancelled.clone());
        let reply = tokio::select! {
            reply = self.execute(&command) => reply,
            () = cancelled.cancelled() => Err(Failure::Cancelled),
        };
        self.running.lock().remove(&command.id);
        say(&match reply {
            Ok(reply) => json!({ "id": command.id, "ok": reply }),
            Err(failure) => json!({ "id": command.id, "error": failure.document() }),
        });
    }
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let driver = Arc::new(Driver::default());
    let log = driver.log.clone();
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || log.clone())
        .init();
    let unsupported: serde_json::Map<String, Value> = UNSUPPORTED
        .iter()
        .map(|(what, why)| ((*what).to_owned(), (*why).into()))
        .collect();
    say(&json!({ "event": "ready", "client": "rust", "unsupported": unsupported }));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        tokio::spawn(driver.clone().run(line));
    }
    // As a program of Rust ends: by closing what it has opened.
    let opened: Vec<_> = driver.clients.lock().values().cloned().collect();
    for client in opened {
        client.client.shut_down().await;
    }
    Ok(())
}
