//! Routes of the HTTP API: each translates a request into a command of the state machine, or into a read.

use std::collections::HashMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use znode_store::{
    Acl, AttemptId, Command, ContenderState, CreateMode, CreatePath, Data, Downgraded, Grant, HoldBounds,
    Identities, LeaseContender, LeaseKey, LockCommand, LockMode, LockName, LockWish, NewLease, Op, Password,
    Place, Refusal, Reply, Request, RequestId, SessionId, WithdrawCause, ZPath, ZnodeEvent, ZnodeEventKind,
    Zxid,
};

use crate::documents::{self, Problem};
use crate::state::Shared;

/// TTL of a session that asks for none.
const DEFAULT_TTL_MS: u32 = 10_000;

/// Name of the caller in events.
const CALLER: &str = "test";

/// Answer to a request.
pub(crate) enum Answer {
    /// A status with a document; null for none.
    Document(u16, Value),
    /// The events of a session after this position.
    Events(SessionId, Zxid),
}

type Outcome = Result<Answer, Problem>;

/// Contender of a lock.
type Contender = (LockName, String);

/// Request.
pub(crate) struct Call {
    method: String,
    /// Segments of the path after `/v1`.
    parts: Vec<String>,
    fields: Fields,
}

/// Fields of a body and of a query: the union of those of all requests.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Fields {
    session: Option<String>,
    request_id: Option<RequestId>,
    retry: u16,
    ttl_ms: Option<u32>,
    name: String,
    /// `null` is a wait without an end.
    #[serde(default = "no_wait")]
    wait_ms: Option<u64>,
    wait: Option<String>,
    mode: Option<String>,
    limit: u32,
    permits: Option<u32>,
    owner: String,
    reentrant: Option<bool>,
    note: String,
    locks: Vec<Fields>,
    lock: String,
    holder: Option<String>,
    holders: Vec<Fields>,
    reason: String,
    answer: String,
    fencing_token: u64,
    data: String,
    data_base64: Option<String>,
    parents: bool,
    path: String,
    version: Option<i32>,
    recursive: bool,
    children: bool,
    kind: String,
    zxid: Option<u64>,
    timeout_ms: u64,
    ops: Vec<HashMap<String, Fields>>,
    requests: Vec<BatchRequest>,
}

#[derive(Deserialize)]
struct BatchRequest {
    method: Option<String>,
    path: String,
    #[serde(default)]
    body: Value,
}

fn no_wait() -> Option<u64> {
    Some(0)
}

/// Answer with a document, or without one.
fn done(document: Value) -> Outcome {
    let status = if document.is_null() { 204 } else { 200 };
    Ok(Answer::Document(status, document))
}

fn lock_name(name: &str) -> Result<LockName, Problem> {
    LockName::parse(name).map_err(|error| Problem::new(400, "bad_lock_name", error))
}

fn znode_path(path: &str) -> Result<ZPath, Problem> {
    ZPath::parse(path).map_err(|error| Problem::new(400, "bad_path", error))
}

fn session_id(text: &str) -> Result<SessionId, Problem> {
    text.parse().map_err(Problem::bad_request)
}

fn lease_key(text: &str) -> Result<LeaseKey, Refusal> {
    let key = || {
        let (session, password) = text.strip_prefix("ls_")?.split_once('_')?;
        let (session, password) = (session.parse().ok()?, u128::from_str_radix(password, 16).ok()?);
        Some(LeaseKey {
            session,
            password: Password(password.to_be_bytes()),
        })
    };
    key().ok_or(Refusal::LeaseExpired)
}

fn no_route() -> Problem {
    Problem::new(404, "no_route", "the fake has no such route")
}

fn no_mode(mode: &str) -> Problem {
    Problem::bad_request(format!("there is no mode {mode:?}"))
}

impl Call {
    pub(crate) fn new(method: &str, target: &str, body: &[u8]) -> Result<Self, Problem> {
        let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut fields: Map<String, Value> = match body {
            [] => Map::new(),
            body => serde_json::from_slice(body).map_err(Problem::bad_request)?,
        };
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let value = decode(value);
            // Ids have leading zeros, or letters.
            let number = value
                .parse::<i64>()
                .ok()
                .filter(|number| number.to_string() == value);
            let value = match (number, value.as_str()) {
                (Some(number), _) => number.into(),
                (None, "true" | "false") => (value == "true").into(),
                (None, _) => value.into(),
            };
            fields.insert(name.to_owned(), value);
        }
        Ok(Self {
            method: method.to_owned(),
            parts: path.split('/').skip(2).map(decode).collect(),
            fields: serde_json::from_value(Value::Object(fields)).map_err(Problem::bad_request)?,
        })
    }

    /// Returns the path of a znode, which follows the first segment.
    fn path(&self) -> String {
        format!("/{}", self.parts[1..].join("/"))
    }
}

impl Fields {
    fn session(&self) -> Result<Option<SessionId>, Problem> {
        self.session.as_deref().map(session_id).transpose()
    }

    fn waits(&self) -> bool {
        self.wait.is_some() || self.wait_ms != Some(0)
    }

    fn deadline(&self) -> Option<Instant> {
        let wait = self.wait_ms.map(Duration::from_millis)?;
        Some(Instant::now() + wait)
    }

    /// Returns the wish for a lock. `call` has the fields that several locks share.
    fn wish(&self, lock: &str, call: &Self) -> Result<LockWish, Problem> {
        let mode = match self.mode.as_deref().unwrap_or("exclusive") {
            "exclusive" => LockMode::Exclusive,
            "shared" => LockMode::Shared,
            "upgradeable" => LockMode::Upgradeable,
            "semaphore" => LockMode::Semaphore { limit: self.limit },
            other => return Err(no_mode(other)),
        };
        Ok(LockWish {
            lock: lock_name(lock)?,
            mode,
            permits: self.permits.unwrap_or(1),
            owner: call.owner.as_str().into(),
            reentrant: self.reentrant.unwrap_or(call.session.is_some()),
            note: call.note.as_str().into(),
            address: CALLER.into(),
            lock_delay_ms: 0,
            names: Default::default(),
        })
    }

    fn data(&self) -> Result<Data, Problem> {
        match &self.data_base64 {
            Some(text) => Ok(BASE64.decode(text).map_err(Problem::bad_request)?.into()),
            None => Ok(self.data.as_str().into()),
        }
    }

    fn creation(&self, path: &str) -> Result<Op, Problem> {
        let ttl_ms = self.ttl_ms.unwrap_or(0).into();
        let mode = match self.mode.as_deref().unwrap_or("persistent") {
            "persistent" => CreateMode::Persistent,
            "ephemeral" => CreateMode::Ephemeral,
            "persistent_sequential" => CreateMode::PersistentSequential,
            "ephemeral_sequential" => CreateMode::EphemeralSequential,
            "container" => CreateMode::Container,
            "ttl" => CreateMode::Ttl { ttl_ms },
            "ttl_sequential" => CreateMode::TtlSequential { ttl_ms },
            other => return Err(no_mode(other)),
        };
        let path = CreatePath::parse(path, mode.is_sequential());
        Ok(Op::Create {
            path: path.map_err(|error| Problem::new(400, "bad_path", error))?,
            data: self.data()?,
            acl: Acl::open(),
            mode,
            parents: self.parents,
        })
    }

    /// Returns the operation of this kind at a path.
    fn op(&self, kind: &str, path: &str) -> Result<Op, Problem> {
        let version = self.version.unwrap_or(-1);
        if kind == "held" {
            let (lock, fencing_token) = (lock_name(&self.lock)?, Zxid(self.fencing_token));
            return Ok(Op::Held { lock, fencing_token });
        }
        if kind == "create" {
            return self.creation(path);
        }
        let path = znode_path(path)?;
        match kind {
            "set" => Ok(Op::Set {
                path,
                data: self.data()?,
                version,
            }),
            "delete" if self.recursive => Ok(Op::DeleteRecursive { path }),
            "delete" => Ok(Op::Delete { path, version }),
            "check" => Ok(Op::Check { path, version }),
            other => Err(Problem::bad_request(format!("there is no operation {other:?}"))),
        }
    }
}

/// Returns the grants of a reply; `None` while it waits.
fn grants(reply: &Reply) -> Option<Vec<Grant>> {
    match reply {
        Reply::Granted(grant)
        | Reply::Leased {
            contender: LeaseContender::Holds(grant),
            ..
        } => Some(vec![grant.clone()]),
        Reply::Multi(parts) => {
            let parts: Option<Vec<_>> = parts.iter().map(grants).collect();
            Some(parts?.concat())
        }
        _ => None,
    }
}

/// Returns the places of a reply in queues.
fn places(reply: &Reply) -> Vec<Contender> {
    match reply {
        Reply::Granted(Grant { lock, holder, .. })
        | Reply::Queued(Place { lock, holder, .. })
        | Reply::Leased {
            contender: LeaseContender::Waits(Place { lock, holder, .. }),
            ..
        } => {
            vec![(lock.clone(), holder.clone())]
        }
        Reply::Multi(parts) => parts.iter().flat_map(places).collect(),
        _ => Vec::new(),
    }
}

impl Shared {
    /// Answers a request. Boxed, because a batch contains requests.
    pub(crate) fn answer(&self, call: Call) -> BoxFuture<'_, Outcome> {
        async move {
            let parts: Vec<&str> = call.parts.iter().map(String::as_str).collect();
            let (method, fields) = (call.method.as_str(), &call.fields);
            match *parts.as_slice() {
                ["sessions"] if method == "POST" => self.open_session(fields),
                ["sessions", session, ref verb @ ..] => {
                    self.session(method, session_id(session)?, verb, fields)
                }
                ["locks", lock, ref verb @ ..] => self.lock(method, lock, verb, fields).await,
                ["multilock", "acquire"] => self.acquire_many(fields).await,
                ["multilock", "release"] => self.release_many(fields),
                ["leases", key, ..] => self.lease(method, lease_key(key)?, fields),
                ["znodes", ..] if method == "GET" => {
                    self.read_znode(znode_path(&call.path())?, fields.children)
                }
                ["znodes", ..] => self.change_znode(method, &call.path(), fields),
                ["watch", ..] => self.watch(znode_path(&call.path())?, fields).await,
                ["txn"] => self.transaction(fields),
                ["batch"] => self.batch(call.fields.requests).await,
                _ => Err(no_route()),
            }
        }
        .boxed()
    }

    fn propose(
        &self,
        session: Option<SessionId>,
        fields: &Fields,
        command: Command,
    ) -> Result<Reply, Refusal> {
        self.apply(Request {
            session,
            request_id: fields.request_id.clone(),
            caller: Identities::none(),
            command,
        })
    }

    fn open_session(&self, fields: &Fields) -> Outcome {
        let command = Command::OpenSession {
            session: SessionId(self.draw()),
            password: Password([0; 16]),
            timeout_ms: fields.ttl_ms.unwrap_or(DEFAULT_TTL_MS),
            name: fields.name.as_str().into(),
            address: CALLER.into(),
        };
        done(documents::reply(&self.propose(None, fields, command)?))
    }

    fn session(&self, method: &str, session: SessionId, verb: &[&str], fields: &Fields) -> Outcome {
        if method == "DELETE" {
            let command = Command::CloseSession { session };
            return done(documents::reply(&self.propose(Some(session), fields, command)?));
        }
        if *verb == ["events"] {
            return Ok(Answer::Events(session, Zxid(fields.zxid.unwrap_or(0))));
        }
        self.read(|state| {
            let view = state.store.session(session);
            // It is also the answer to a heartbeat, which changes nothing.
            done(documents::session(
                &state.store,
                &view.ok_or(Refusal::SessionEnded(session))?,
            ))
        })
    }

    async fn lock(&self, method: &str, name: &str, verb: &[&str], fields: &Fields) -> Outcome {
        let (session, lock) = (fields.session()?, lock_name(name)?);
        let (holder, reason) = (
            fields.holder.clone().unwrap_or_default(),
            fields.reason.as_str().into(),
        );
        let command = match (method, verb) {
            ("GET", []) => {
                let view = self.read(|state| state.store.lock(&lock));
                return done(documents::lock(&view.ok_or(Refusal::NoLock(lock))?));
            }
            ("GET", ["check"]) => {
                let token = Zxid(fields.fencing_token);
                return done(json!({ "held": self.read(|state| state.store.is_held_with(&lock, token)) }));
            }
            ("GET", ["holders", holder]) => return self.poll(&lock, holder, fields).await,
            (_, ["acquire"]) => return self.acquire(name, fields).await,
            (_, ["upgrade"]) => {
                let attempt = AttemptId::of_retry(fields.retry, self.draw());
                let command = LockCommand::Upgrade {
                    lock,
                    holder,
                    attempt,
                    wait: fields.waits(),
                };
                let grants = self.granted(session, fields, attempt, Command::Lock(command));
                return done(documents::grant(&grants.await?.1[0]));
            }
            (_, ["release"]) => LockCommand::Release { lock, holder },
            (_, ["break"]) => LockCommand::Break {
                lock,
                holder,
                by: CALLER.into(),
                reason,
            },
            (_, ["downgrade"]) => {
                let to = match fields.mode.as_deref() {
                    Some("upgradeable") => Downgraded::Upgradeable,
                    _ => Downgraded::Shared,
                };
                LockCommand::Downgrade { lock, holder, to }
            }
            (_, ["release-request"]) => LockCommand::Revoke {
                lock,
                holder: fields.holder.clone(),
                by: CALLER.into(),
                reason,
            },
            (_, ["release-request", "reply"]) => LockCommand::AnswerRevoke {
                lock,
                holder,
                answer: fields.answer.as_str().into(),
            },
            _ => return Err(no_route()),
        };
        done(documents::reply(&self.propose(
            session,
            fields,
            Command::Lock(command),
        )?))
    }

    /// Acquires a lock for a session, or by a lease.
    async fn acquire(&self, lock: &str, fields: &Fields) -> Outcome {
        let session = fields.session()?;
        let attempt = AttemptId::of_retry(fields.retry, self.draw());
        let lease = || NewLease {
            key: LeaseKey {
                session: SessionId(self.draw()),
                password: Password(u128::from(self.draw()).to_be_bytes()),
            },
            timeout_ms: fields.ttl_ms.unwrap_or(DEFAULT_TTL_MS),
        };
        let command = LockCommand::AcquireBounded {
            wish: fields.wish(lock, fields)?,
            guid: self.draw().into(),
            attempt,
            wait: fields.waits(),
            bounds: HoldBounds::default(),
            lease: session.is_none().then(lease),
        };
        let (reply, grants) = self
            .granted(session, fields, attempt, Command::Lock(command))
            .await?;
        let mut answer = match (grants.as_slice(), places(&reply).as_slice()) {
            ([grant], _) => documents::grant(grant),
            (_, [(lock, holder)]) => json!({ "lock": lock.as_str(), "holder": holder }),
            _ => return Err(Problem::new(500, "internal", reply)),
        };
        if let Reply::Leased {
            lease, timeout_ms, ..
        } = reply
        {
            answer["lease"] = documents::lease_text(&lease).into();
            answer["expires_in_ms"] = timeout_ms.into();
        }
        Ok(Answer::Document(
            if grants.is_empty() { 202 } else { 200 },
            answer,
        ))
    }

    async fn acquire_many(&self, fields: &Fields) -> Outcome {
        let wishes = fields.locks.iter().map(|each| each.wish(&each.name, fields));
        let attempt = AttemptId::of_retry(fields.retry, self.draw());
        let command = LockCommand::AcquireMany {
            wishes: wishes.collect::<Result<_, _>>()?,
            guid: self.draw().into(),
            attempt,
            wait: fields.waits(),
        };
        let granted = self.granted(fields.session()?, fields, attempt, Command::Lock(command));
        let holders: Vec<Value> = granted.await?.1.iter().map(documents::grant).collect();
        done(json!({ "holders": holders }))
    }

    fn release_many(&self, fields: &Fields) -> Outcome {
        let holders = fields.holders.iter();
        let holders =
            holders.map(|each| Ok((lock_name(&each.lock)?, each.holder.clone().unwrap_or_default())));
        let holders: Vec<Contender> = holders.collect::<Result<_, Problem>>()?;
        let command = LockCommand::ReleaseMany {
            holders: holders.clone(),
        };
        let Reply::ReleasedMany(holds) = self.propose(fields.session()?, fields, Command::Lock(command))?
        else {
            return done(Value::Null);
        };
        let released = holders.iter().zip(holds);
        let released = released.map(
            |((lock, holder), holds)| json!({ "lock": lock.as_str(), "holder": holder, "holds": holds }),
        );
        done(json!({ "released": released.collect::<Vec<_>>() }))
    }

    /// Executes the command of a call, and waits until all its contenders hold their locks. Withdraws the call if they do not in time.
    /// Returns no grants of a call that stays in its queue.
    async fn granted(
        &self,
        session: Option<SessionId>,
        fields: &Fields,
        attempt: AttemptId,
        command: Command,
    ) -> Result<(Reply, Vec<Grant>), Refusal> {
        let upgrades = matches!(command, Command::Lock(LockCommand::Upgrade { .. }));
        let reply = self.propose(session, fields, command)?;
        if let Some(grants) = grants(&reply) {
            return Ok((reply, grants));
        }
        if fields.wait.is_some() {
            return Ok((reply, Vec::new()));
        }
        let (mut holders, session) = match &reply {
            Reply::Leased { lease, .. } => (places(&reply), Some(lease.session)),
            _ => (places(&reply), session),
        };
        let ended = self.until(fields.deadline(), |state| {
            let mut granted = Vec::new();
            for (lock, holder) in &holders {
                match state.store.contender_state(lock, holder) {
                    Some(ContenderState::Holds(grant)) => granted.push(grant),
                    Some(ContenderState::Upgrades(grant)) if !upgrades => granted.push(grant),
                    Some(_) => return None,
                    None => {
                        let (lock, holder) = (lock.clone(), holder.clone());
                        let ended = session.filter(|session| state.store.session(*session).is_none());
                        return Some(Err(
                            ended.map_or(Refusal::NotHolder { lock, holder }, Refusal::SessionEnded)
                        ));
                    }
                }
            }
            Some(Ok(granted))
        });
        if let Some(ended) = ended.await {
            return Ok((reply, ended?));
        }
        let cause = WithdrawCause::TimedOut;
        let (lock, holder) = holders[0].clone();
        let late = Refusal::LockTimeout(lock.clone());
        let command = match holders.len() {
            1 => LockCommand::Withdraw {
                lock,
                holder,
                attempt,
                cause,
            },
            _ => LockCommand::WithdrawMany {
                holders: std::mem::take(&mut holders),
                attempt,
                cause,
            },
        };
        // If the lock was granted meanwhile, the grant counts.
        let withdrawn = self.propose(session, &Fields::default(), Command::Lock(command))?;
        Ok((reply, grants(&withdrawn).ok_or(late)?))
    }

    /// Waits for a contender in the queue to be granted its lock.
    async fn poll(&self, lock: &LockName, holder: &str, fields: &Fields) -> Outcome {
        let look = |state: &crate::state::State| match state.store.contender_state(lock, holder) {
            Some(ContenderState::Waits(_)) => None,
            other => Some(other),
        };
        match self.until(fields.deadline(), look).await {
            None => done(Value::Null),
            Some(Some(ContenderState::Holds(grant) | ContenderState::Upgrades(grant))) => {
                done(documents::grant(&grant))
            }
            Some(_) => Err(Problem::new(410, "holder_gone", "the contender is gone")),
        }
    }

    fn lease(&self, method: &str, lease: LeaseKey, fields: &Fields) -> Outcome {
        if method == "DELETE" {
            return done(documents::reply(&self.propose(
                None,
                fields,
                Command::ReleaseLease { lease },
            )?));
        }
        if let Some(timeout_ms) = fields.ttl_ms {
            self.propose(None, fields, Command::RenewLease { lease, timeout_ms })?;
        }
        let view = self.read(|state| state.store.lease(&lease));
        done(documents::lease(&view.ok_or(Refusal::LeaseExpired)?))
    }

    fn change_znode(&self, method: &str, path: &str, fields: &Fields) -> Outcome {
        let kind = match method {
            "POST" => "create",
            "PUT" => "set",
            _ => "delete",
        };
        let command = Command::Write(fields.op(kind, path)?);
        let mut answer = documents::reply(&self.propose(fields.session()?, fields, command)?);
        if kind == "set" {
            answer["path"] = path.into();
        }
        done(answer)
    }

    fn read_znode(&self, path: ZPath, with_children: bool) -> Outcome {
        self.read(|state| {
            let found = state.store.get(&path);
            let (data, stat) = found.ok_or_else(|| Refusal::NoNode(path.clone()))?;
            let mut answer = documents::znode(&data, &stat);
            if with_children {
                let names = state.store.children(&path).unwrap_or_default();
                let children = names.iter().filter_map(|name| {
                    let stat = state.store.stat(&path.join(name).ok()?)?;
                    Some(json!({ "name": &**name, "stat": documents::stat(&stat) }))
                });
                answer["children"] = children.collect();
            }
            done(answer)
        })
    }

    async fn watch(&self, path: ZPath, fields: &Fields) -> Outcome {
        let (exists, now) = self.read(|state| (state.store.stat(&path).is_some(), state.store.zxid()));
        if !exists && matches!(fields.kind.as_str(), "data" | "children") {
            return Err(Refusal::NoNode(path).into());
        }
        let seen = fields.zxid.map_or(now, Zxid);
        let below = format!("{}/", path.as_str().trim_end_matches('/'));
        let is_watched = |change: &ZnodeEvent| {
            let of_children = change.kind == ZnodeEventKind::ChildrenChanged;
            match fields.kind.as_str() {
                "children" => change.path == path && (of_children || change.kind == ZnodeEventKind::Deleted),
                "recursive" if change.path.as_str().starts_with(&below) => !of_children,
                _ => change.path == path && !of_children,
            }
        };
        let deadline = Instant::now() + Duration::from_millis(fields.timeout_ms);
        let change = self.until(Some(deadline), |state| {
            let mut changes = state.changes.iter();
            changes
                .find(|(zxid, change)| *zxid > seen && is_watched(change))
                .cloned()
        });
        let Some((zxid, change)) = change.await else {
            return done(Value::Null);
        };
        let event = match change.kind {
            ZnodeEventKind::Created => "created",
            ZnodeEventKind::Deleted => "deleted",
            ZnodeEventKind::DataChanged => "data_changed",
            ZnodeEventKind::ChildrenChanged => "children_changed",
        };
        done(json!({ "event": event, "path": change.path.as_str(), "zxid": zxid.0 }))
    }

    fn transaction(&self, fields: &Fields) -> Outcome {
        let ops = fields.ops.iter().flatten();
        let ops = ops.map(|(kind, fields)| fields.op(kind, &fields.path));
        let command = Command::Multi(ops.collect::<Result<_, _>>()?);
        match self.propose(fields.session()?, fields, command)? {
            Reply::Multi(replies) => {
                let results: Vec<Value> = replies.iter().map(documents::result).collect();
                done(json!({ "results": results }))
            }
            other => Err(Problem::new(500, "internal", other)),
        }
    }

    async fn batch(&self, requests: Vec<BatchRequest>) -> Outcome {
        let served = requests
            .into_iter()
            .map(async |BatchRequest { method, path, body }| {
                let body = if body.is_null() {
                    String::new()
                } else {
                    body.to_string()
                };
                let answered = match Call::new(method.as_deref().unwrap_or("POST"), &path, body.as_bytes()) {
                    Ok(call) => self.answer(call).await,
                    Err(problem) => Err(problem),
                };
                match answered {
                    Ok(Answer::Document(status, Value::Null)) => json!({ "status": status }),
                    Ok(Answer::Document(status, body)) => json!({ "status": status, "body": body }),
                    Ok(Answer::Events(..)) => json!({ "status": 400, "problem": no_route().document() }),
                    Err(problem) => json!({ "status": problem.status, "problem": problem.document() }),
                }
            });
        done(json!({ "results": join_all(served).await }))
    }
}
