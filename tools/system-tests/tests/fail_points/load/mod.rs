//! Clients of the cluster during faults: they acquire locks, write, let sessions expire, and record
//! violations. Independent of the fail points.

mod leases;
mod modes;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cli_support::api_client::{ApiClient, CallError, RenewedSession, request_id};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{RwLock, RwLockWriteGuard};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Number of clients that acquire locks: enough for a waiter at each lock at any time.
const LOCK_USERS: usize = 5;

/// Locks that they acquire in turn.
const LOCKS: [&str; 2] = ["fp/a", "fp/b"];

/// Number of clients that write to registers of their own.
const WRITERS: usize = 3;

/// Time limit of a call with its retries. A fault ends much earlier.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Time limit of a response before another node is called.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Wait for a lock: sometimes it is granted in time, sometimes not.
const LOCK_WAIT_MS: u64 = 60;

/// TTL of sessions with heartbeats, far longer than any fault: losing one is a violation.
const KEPT_TTL: Duration = Duration::from_secs(20);

/// TTL of sessions without heartbeats: the shortest possible.
const SILENT_TTL: Duration = Duration::from_secs(2);

/// Lock delay of the locks of silent sessions.
const LOCK_DELAY_MS: u64 = 100;

/// Time limit for silent sessions to end after their TTL, on a busy machine. Every new leader restarts their
/// TTL, so the limit holds only without faults.
const SILENT_END: Duration = Duration::from_secs(8);

/// Number of the latest znodes that are checked for when the cluster is quiet.
const KEPT_ZNODES: usize = 60;

/// Pause between two rounds of a client: nodes and clients share the processors.
const PAUSE: Duration = Duration::from_millis(8);

/// Knowledge of the clients, and the violations that they have found.
#[derive(Default)]
pub struct Ledger {
    grants: AtomicU64,
    writes: AtomicU64,
    last_grant: Mutex<Option<Instant>>,
    longest_gap: Mutex<Duration>,
    holders: Mutex<HashMap<&'static str, usize>>,
    tokens: Mutex<HashMap<&'static str, u64>>,
    registers: [AtomicU64; WRITERS],
    znodes: Mutex<VecDeque<(String, u64)>>,
    /// Ephemeral znodes of sessions without heartbeats.
    dying: Mutex<VecDeque<String>>,
    violations: Mutex<Vec<String>>,
    /// Read-locked by every round, write-locked to make the clients pause.
    turns: RwLock<()>,
}

impl Ledger {
    fn violation(&self, what: String) {
        eprintln!("VIOLATION: {what}");
        self.violations.lock().push(what);
    }

    fn granted(&self, lock: &'static str, user: usize, token: u64) {
        let now = Instant::now();
        self.grants.fetch_add(1, Ordering::Relaxed);
        if let Some(last) = self.last_grant.lock().replace(now) {
            let mut longest = self.longest_gap.lock();
            *longest = (*longest).max(now - last);
        }
        if let Some(other) = self.holders.lock().insert(lock, user) {
            self.violation(format!("{lock} is granted to {user} while {other} holds it"));
        }
        if let Some(before) = self.tokens.lock().insert(lock, token)
            && before >= token
        {
            self.violation(format!("{lock}: token {token} follows token {before}"));
        }
    }

    fn released(&self, lock: &'static str) {
        self.holders.lock().remove(lock);
    }
}

/// Clients of the cluster, which run until this is dropped.
pub struct Load {
    ledger: Arc<Ledger>,
    _users: JoinSet<()>,
}

impl Load {
    /// Starts the clients on `nodes`.
    pub fn start(nodes: &[String]) -> Self {
        let ledger = Arc::new(Ledger::default());
        let mut users = JoinSet::new();
        let client = |first: usize| ApiClient::new(nodes, first, REQUEST_TIMEOUT);
        for user in 0..LOCK_USERS {
            users.spawn(lock_user(ledger.clone(), client(user), user));
        }
        for user in 0..WRITERS {
            users.spawn(writer(ledger.clone(), client(user), user));
        }
        users.spawn(occasional(ledger.clone(), client(1)));
        users.spawn(silent_user(ledger.clone(), client(2)));
        users.spawn(modes::user(ledger.clone(), client(0)));
        users.spawn(leases::user(ledger.clone(), client(1)));
        Self {
            ledger,
            _users: users,
        }
    }

    /// Returns the number of grants.
    pub fn grants(&self) -> u64 {
        self.ledger.grants.load(Ordering::Relaxed)
    }

    /// Returns the number of acknowledged writes.
    pub fn writes(&self) -> u64 {
        self.ledger.writes.load(Ordering::Relaxed)
    }

    /// Returns the longest time without a grant since the last call.
    pub fn take_longest_gap(&self) -> Duration {
        std::mem::take(&mut self.ledger.longest_gap.lock())
    }

    /// Returns the violations since the last call.
    pub fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut self.ledger.violations.lock())
    }

    /// Waits until every round has ended; none begins while the guard is held.
    pub async fn pause_clients(&self) -> RwLockWriteGuard<'_, ()> {
        let guard = self.ledger.turns.write().await;
        // The pause must not count as an outage of the cluster.
        *self.ledger.last_grant.lock() = None;
        guard
    }

    /// Waits until all silent sessions have ended; describes what is left of them. Must be called while the
    /// clients pause.
    pub async fn live_silent_sessions(&self, node: &str) -> Vec<String> {
        let mut client = ApiClient::new(&[node.to_owned()], 0, REQUEST_TIMEOUT);
        let deadline = Instant::now() + SILENT_END;
        let mut live_silent_sessions = Vec::new();
        let dying = std::mem::take(&mut *self.ledger.dying.lock());
        for path in dying {
            loop {
                let fresh = format!("{path}?linearizable=true");
                match client.call("GET", &fresh, &Value::Null, ANSWER_TIMEOUT).await {
                    Err(CallError::Rejected { status: 404, .. }) => break,
                    _ if Instant::now() < deadline => tokio::time::sleep(PAUSE * 5).await,
                    other => {
                        let found = other.map(|found| found.status);
                        live_silent_sessions.push(format!("{path} outlives its silent session: {found:?}"));
                        break;
                    }
                }
            }
        }
        live_silent_sessions
    }

    /// Describes the acknowledged writes that a node lacks. Must be called while the clients pause.
    pub async fn missing(&self, node: &str) -> Vec<String> {
        let mut client = ApiClient::new(&[node.to_owned()], 0, REQUEST_TIMEOUT);
        let mut missing = Vec::new();
        let mut expected: Vec<(String, u64)> = self.ledger.znodes.lock().iter().cloned().collect();
        for (user, register) in self.ledger.registers.iter().enumerate() {
            match register.load(Ordering::Relaxed) {
                0 => {}
                value => expected.push((register_path(user), value)),
            }
        }
        for (path, value) in expected {
            let path = format!("/v1/znodes{path}");
            let found = client.call("GET", &path, &Value::Null, ANSWER_TIMEOUT).await;
            let data = found.map(|found| found.json()["data"].clone());
            match data {
                Ok(data) if data == json!(value.to_string()) => {}
                other => missing.push(format!("{node} has {other:?} at {path} instead of {value}")),
            }
        }
        missing
    }
}

fn register_path(user: usize) -> String {
    format!("/fp/register-{user}")
}

async fn open(ledger: &Ledger, client: &mut ApiClient, name: &str) -> RenewedSession {
    loop {
        match RenewedSession::open(client, KEPT_TTL, name).await {
            Ok(session) => return session,
            Err(error) => ledger.violation(format!("{name} cannot open a session: {error}")),
        }
    }
}

/// Acquires a lock, checks that the cluster agrees, and releases it.
async fn lock_user(ledger: Arc<Ledger>, mut client: ApiClient, user: usize) {
    let name = format!("lock user {user}");
    let mut session = open(&ledger, &mut client, &name).await;
    for round in user.. {
        let turn = ledger.turns.read().await;
        let lock = LOCKS[round % LOCKS.len()];
        if round % 32 == 31 {
            if let Err(error) = client.close_session(session.id()).await {
                ledger.violation(format!("{name} cannot close its session: {error}"));
            }
            session = open(&ledger, &mut client, &name).await;
        }
        let wishes = json!({ "wait_ms": LOCK_WAIT_MS });
        match client.acquire_with(session.id(), lock, wishes).await {
            Ok(held) => {
                ledger.granted(lock, user, held.fencing_token);
                if round % 4 == 0 {
                    match client.check(&held).await {
                        Ok(true) => {}
                        other => ledger
                            .violation(format!("{name} holds {held:?}, but the check returned {other:?}")),
                    }
                }
                ledger.released(lock);
                if let Err(error) = client.release(session.id(), &held).await {
                    ledger.violation(format!("{name} cannot release {held:?}: {error}"));
                }
            }
            Err(error) if error.code() == "lock_timeout" => {}
            Err(error) => {
                ledger.violation(format!(
                    "{name} (session {}) cannot acquire {lock}: {error}",
                    session.id()
                ));
                session = open(&ledger, &mut client, &name).await;
            }
        }
        drop(turn);
        tokio::time::sleep(PAUSE).await;
    }
}

/// Sends a request that must be applied.
async fn must(ledger: &Ledger, client: &mut ApiClient, method: &str, path: &str, mut body: Value) -> bool {
    let id = request_id();
    let path = match body.is_null() {
        true if path.contains('?') => format!("{path}&request_id={id}"),
        true => format!("{path}?request_id={id}"),
        false => {
            body["request_id"] = id.into();
            path.to_owned()
        }
    };
    match client.call(method, &path, &body, ANSWER_TIMEOUT).await {
        Ok(_) => {
            ledger.writes.fetch_add(1, Ordering::Relaxed);
            true
        }
        Err(error) => {
            ledger.violation(format!("{method} {path} {body}: {error}"));
            false
        }
    }
}

/// Counts in a register, and creates and deletes znodes by all kinds of requests.
async fn writer(ledger: Arc<Ledger>, mut client: ApiClient, user: usize) {
    let register = register_path(user);
    let at = |path: &str| format!("/v1/znodes{path}");
    {
        let _turn = ledger.turns.read().await;
        must(
            &ledger,
            &mut client,
            "POST",
            &at(&register),
            json!({ "data": "0", "parents": true }),
        )
        .await;
    }
    for round in 1_u64.. {
        let turn = ledger.turns.read().await;
        let created = format!("/fp/znodes/{user}-{round}");
        // Large enough to fill a segment of the log in a second.
        let body = json!({ "data": round.to_string(), "parents": true });
        let is_there = must(&ledger, &mut client, "POST", &at(&created), body).await;
        if must(
            &ledger,
            &mut client,
            "PUT",
            &at(&register),
            json!({ "data": round.to_string() }),
        )
        .await
        {
            ledger.registers[user].store(round, Ordering::Relaxed);
        }
        let old = {
            let mut znodes = ledger.znodes.lock();
            match znodes.len() > KEPT_ZNODES {
                true => znodes.pop_front(),
                false => None,
            }
        };
        if let Some((old, _)) = old {
            must(&ledger, &mut client, "DELETE", &at(&old), Value::Null).await;
        }
        if round % 4 == 0 {
            let acl = json!({ "acl": [{ "perms": "cdrwa", "scheme": "world", "id": "anyone" }] });
            must(&ledger, &mut client, "PUT", &format!("/v1/acl{created}"), acl).await;
            let (tree, leaf) = (format!("{register}/tree"), format!("{register}/tree/leaf"));
            let ops = json!([
                { "create": { "path": tree, "data": "x".repeat(2000) } },
                { "create": { "path": leaf, "data": "" } },
            ]);
            must(&ledger, &mut client, "POST", "/v1/txn", json!({ "ops": ops })).await;
            let all = format!("{}?recursive=true", at(&tree));
            must(&ledger, &mut client, "DELETE", &all, Value::Null).await;
        }
        // From now on any writer may delete the znode.
        if is_there {
            ledger.znodes.lock().push_back((created, round));
        }
        drop(turn);
        tokio::time::sleep(PAUSE).await;
    }
}

/// Occasional actions: locks that are used once, and an operator that breaks a lock.
async fn occasional(ledger: Arc<Ledger>, mut client: ApiClient) {
    let session = open(&ledger, &mut client, "occasional").await;
    for round in 0_u64.. {
        let turn = ledger.turns.read().await;
        let once = format!("fp/once/{round}");
        for (lock, breaks) in [(once.as_str(), false), ("fp/broken", true)] {
            let held = match client.acquire(session.id(), lock).await {
                Ok(held) => held,
                Err(error) => {
                    ledger.violation(format!("{lock} has no other contender: {error}"));
                    continue;
                }
            };
            let ended = if breaks {
                let body = json!({ "holder": held.holder, "reason": "a test", "request_id": request_id() });
                let path = format!("/v1/locks/{lock}/break");
                client.call("POST", &path, &body, ANSWER_TIMEOUT).await.map(drop)
            } else {
                client.release(session.id(), &held).await
            };
            if let Err(error) = ended {
                ledger.violation(format!("{held:?} cannot be ended: {error}"));
            }
        }
        drop(turn);
        tokio::time::sleep(PAUSE * 20).await;
    }
}

/// Opens sessions with an ephemeral znode each, and lets them expire.
async fn silent_user(ledger: Arc<Ledger>, mut client: ApiClient) {
    for round in 0_u64.. {
        let turn = ledger.turns.read().await;
        match client.open_session(SILENT_TTL, "mourned").await {
            Ok(session) => {
                let path = format!("/v1/znodes/fp/ephemeral-{round}");
                let body = json!({ "mode": "ephemeral", "session": session, "request_id": request_id() });
                // The lock has a lock delay after the session's end.
                let wishes = json!({ "lock_delay_ms": LOCK_DELAY_MS });
                match client
                    .acquire_with(&session, &format!("fp/delayed/{round}"), wishes)
                    .await
                {
                    Ok(_)
                    | Err(CallError::Rejected {
                        status: 404 | 410, ..
                    }) => {}
                    Err(error) => {
                        ledger.violation(format!("fp/delayed/{round} has no other contender: {error}"))
                    }
                }
                match client.call("POST", &path, &body, ANSWER_TIMEOUT).await {
                    Ok(_) => ledger.dying.lock().push_back(path),
                    // A fault may last longer than such a session.
                    Err(CallError::Rejected {
                        status: 404 | 410, ..
                    }) => {}
                    Err(error) => ledger.violation(format!("POST {path}: {error}")),
                }
            }
            Err(error) => ledger.violation(format!("no session: {error}")),
        }
        drop(turn);
        tokio::time::sleep(PAUSE * 30).await;
    }
}
