//! HTTP backend of Terraform and OpenTofu: the state `NAME` is the data of the znode `/NAME`, and its lock is the lock
//! `NAME`, held by a lease.
//!
//! Terraform neither renews a lock nor keeps a secret of it. It names a lock by the `ID` in the document that it sends
//! with the lock. So that document is the note of the hold, and the lease is released by the holder with this `ID`.
//!
//! Statuses are those that Terraform knows: 200 for everything that succeeds, and 423 with the document of the holder.

use std::borrow::Cow;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use znode_store::{
    Acl, Command, ContenderNames, ContenderView, CreateMode, CreatePath, HoldBounds, LockMode, LockName,
    LockWish, MAX_NOTE_BYTES, Op, Refusal, Right, View, ZPath,
};

use super::extract::{HandlerResult, json, no_query, ok, parse, query, read_body};
use super::lock_types::within;
use super::locks::locks_of;
use super::problem::{Code, Problem};
use super::url::decode;
use super::znode_types::ANY_VERSION;
use super::znodes::propose;
use super::{Api, Peer, Shared};
use crate::locks::{LockError, WaitFor};

/// Prefix of the addresses of states.
const STATES: &str = "/v1/terraform/states/";

/// Prefix of the addresses of their locks.
const LOCKS: &str = "/v1/terraform/locks/";

/// Returns the method that stands for Terraform's own method of a lock: `LOCK` and `UNLOCK` are the defaults of its
/// `lock_method` and `unlock_method`. The router knows standard methods only.
pub fn standard_method(method: &Method, path: &str) -> Option<Method> {
    let standard = match method.as_str() {
        "LOCK" => Method::POST,
        "UNLOCK" => Method::DELETE,
        _ => return None,
    };
    path.starts_with(LOCKS).then_some(standard)
}

/// Time to live of a lock: the longest that a node allows by default. Terraform does not renew a lock, so this is also
/// the longest run whose state is accepted at its end.
const TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// Terraform's description of a lock.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct TerraformLock<'a> {
    /// Name of this hold, chosen by Terraform. Of a holder that is not Terraform, the name of its contender.
    #[serde(rename = "ID", borrow)]
    id: Cow<'a, str>,
    #[serde(rename = "Operation", borrow, default)]
    operation: Cow<'a, str>,
    #[serde(rename = "Info", borrow, default)]
    info: Cow<'a, str>,
    #[serde(rename = "Who", borrow, default)]
    who: Cow<'a, str>,
    #[serde(rename = "Version", borrow, default)]
    version: Cow<'a, str>,
    /// Time of the request. Absent for a holder that is not Terraform.
    #[serde(rename = "Created", borrow, default, skip_serializing_if = "Option::is_none")]
    created: Option<Cow<'a, str>>,
    #[serde(rename = "Path", borrow, default)]
    path: Cow<'a, str>,
}

impl<'a> TerraformLock<'a> {
    /// Returns the description of a holder: its note if Terraform wrote it, and otherwise what Terraform shows of it.
    fn of(holder: &'a ContenderView) -> Self {
        serde_json::from_str(&holder.note).unwrap_or_else(|_| Self {
            id: holder.holder.as_str().into(),
            operation: "lockgate".into(),
            info: (&*holder.note).into(),
            who: holder.address.host().into(),
            version: "".into(),
            created: None,
            path: "".into(),
        })
    }
}

fn target(uri: &Uri, prefix: &str) -> Result<(LockName, ZPath), Problem> {
    let name = uri.path().strip_prefix(prefix).expect("the route begins with it");
    let name = decode(name).map_err(Problem::bad_lock_name)?;
    let lock = LockName::parse(&name).map_err(Problem::bad_lock_name)?;
    Ok((lock, ZPath::parse(&format!("/{name}"))?))
}

/// Returns the current holder of a lock. The caller need not be allowed to see it.
async fn holder_of(api: &Api, lock: &LockName) -> Result<Option<ContenderView>, Problem> {
    api.node.read_barrier().await?;
    let view = api.node.read(|store| store.lock_within(lock, 1));
    Ok(view.and_then(|view| view.holders.into_iter().next()))
}

/// Answer to a request that has succeeded.
#[derive(Serialize, ToSchema)]
pub struct TerraformDone {}

fn succeeded() -> Response {
    ok(&TerraformDone {})
}

/// Answers with the description of the holder, if the caller may see it.
fn locked(api: &Api, peer: &Peer, lock: &LockName, holder: &ContenderView) -> HandlerResult {
    locks_of(api, peer).get(lock, 0)?;
    Ok(json(StatusCode::LOCKED, &TerraformLock::of(holder)))
}

/// `POST /v1/terraform/locks/{name}`
pub async fn lock(State(api): State<Shared>, peer: Peer, uri: Uri, body: Body) -> HandlerResult {
    let (lock, _) = target(&uri, LOCKS)?;
    no_query(&uri)?;
    let bytes = read_body(body, api.config().max_body_bytes, api.config().body_timeout).await?;
    let asked: TerraformLock<'_> = parse(&bytes)?;
    let note = serde_json::to_string(&asked).expect("it is made of texts");
    within("the description of the lock", &note, MAX_NOTE_BYTES)?;
    let wish = LockWish {
        lock: lock.clone(),
        mode: LockMode::Exclusive,
        permits: 1,
        owner: "".into(),
        reentrant: false,
        note: note.into(),
        address: peer.shown().into(),
        lock_delay_ms: 0,
        names: ContenderNames::Mutex,
    };
    let bounds = HoldBounds::default();
    let request_id = peer.request_id(None)?;
    let locks = locks_of(&api, &peer);
    let leased = locks.acquire_lease(TTL, wish, bounds, WaitFor::Try, request_id, 0);
    match leased.await {
        Ok(_) => Ok(succeeded()),
        Err(LockError::Refused(busy @ Refusal::LockBusy { .. })) => match holder_of(&api, &lock).await? {
            // A repetition, after a lost answer.
            Some(holder) if TerraformLock::of(&holder).id == asked.id => Ok(succeeded()),
            Some(holder) => locked(&api, &peer, &lock, &holder),
            // It is closed for a while.
            None => Err(busy.into()),
        },
        Err(error) => Err(error.into()),
    }
}

/// `DELETE /v1/terraform/locks/{name}`
///
/// `terraform force-unlock` sends no body, and so does not say which lock it means: it breaks the lock, for which the
/// caller needs the right.
pub async fn unlock(State(api): State<Shared>, peer: Peer, uri: Uri, body: Body) -> HandlerResult {
    let (lock, _) = target(&uri, LOCKS)?;
    no_query(&uri)?;
    let bytes = read_body(body, api.config().max_body_bytes, api.config().body_timeout).await?;
    let asked: Option<TerraformLock<'_>> = match bytes.is_empty() {
        true => None,
        false => Some(parse(&bytes)?),
    };
    let request_id = peer.request_id(None)?;
    let caller = peer.identities();
    let may_know = |view: View<'_>| {
        let may_lock = view.may(Right::Lock, lock.znode());
        may_lock.or_else(|refusal| view.may(Right::Read, lock.znode()).map_err(|_| refusal))
    };
    api.node.read_facts(|store| may_know(store.seen_by(&caller)))?;
    let Some(holder) = holder_of(&api, &lock).await? else {
        return Ok(succeeded());
    };
    let locks = locks_of(&api, &peer);
    match asked {
        Some(asked) if TerraformLock::of(&holder).id == asked.id => {
            locks
                .release(holder.session, lock, holder.holder, request_id)
                .await?;
        }
        Some(_) => return locked(&api, &peer, &lock, &holder),
        None => {
            let reason = "terraform force-unlock";
            let what = format!("{} in the lock {lock}: {reason}", holder.holder);
            let entry = api.audit_log.begin(&peer, "break", what);
            let by = peer.shown();
            let broken = locks.break_holder(lock, holder.holder, &by, reason, request_id);
            entry.end(broken.await)?;
        }
    }
    Ok(succeeded())
}

/// `GET /v1/terraform/states/{name}`
pub async fn get(State(api): State<Shared>, peer: Peer, uri: Uri) -> HandlerResult {
    let (_, path) = target(&uri, STATES)?;
    no_query(&uri)?;
    api.node.read_barrier().await?;
    let caller = peer.identities();
    let (data, _) = api.node.read_facts(|store| store.seen_by(&caller).get(&path))?;
    let mut response = Response::new(Body::from(Bytes::copy_from_slice(data.as_bytes())));
    // A node does not read states.
    let content_type = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    Ok(response)
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StateQuery {
    /// `ID` of the lock under which the state is written. Absent with `-lock=false`.
    #[serde(rename = "ID")]
    id: Option<String>,
}

/// Returns the change of a state under the lock with the `ID` that the caller names; without one, only if nobody holds
/// the lock.
async fn change(
    api: &Api,
    peer: &Peer,
    (lock, path): (LockName, ZPath),
    id: Option<String>,
    op: Op,
) -> HandlerResult {
    let caller = peer.identities();
    api.node
        .read_facts(|store| store.seen_by(&caller).may(Right::Write, &path))?;
    let mut ops = Vec::new();
    let mut session = None;
    match (holder_of(api, &lock).await?, id) {
        (Some(holder), Some(id)) if TerraformLock::of(&holder).id == id => {
            session = Some(holder.session);
            let fencing_token = holder.fencing_token;
            ops.push(Op::Held { lock, fencing_token });
        }
        (Some(holder), _) => return locked(api, peer, &lock, &holder),
        (None, Some(id)) => {
            let detail = format!("the lock {lock} with the ID {id:?} has ended");
            return Err(Problem::new(Code::NotHolder, detail));
        }
        (None, None) => {}
    }
    ops.push(op);
    propose(api, peer, session, peer.request_id(None)?, Command::Multi(ops)).await?;
    Ok(succeeded())
}

/// `POST /v1/terraform/states/{name}`
pub async fn update(State(api): State<Shared>, peer: Peer, uri: Uri, body: Body) -> HandlerResult {
    let (lock, path) = target(&uri, STATES)?;
    let StateQuery { id } = query(&uri)?;
    let bytes = read_body(body, api.config().max_data_body_bytes, api.config().body_timeout).await?;
    let data = bytes.as_ref().into();
    api.node.read_barrier().await?;
    let op = match api.node.read_facts(|store| store.get(&path).is_some()) {
        true => Op::Set {
            path: path.clone(),
            data,
            version: ANY_VERSION,
        },
        false => Op::Create {
            path: CreatePath::parse(path.as_str(), false)?,
            data,
            acl: Acl::open(),
            mode: CreateMode::Persistent,
            parents: true,
        },
    };
    op.check_path(&api.config().paths)?;
    change(&api, &peer, (lock, path), id, op).await
}

/// `DELETE /v1/terraform/states/{name}`
pub async fn delete(State(api): State<Shared>, peer: Peer, uri: Uri) -> HandlerResult {
    let (lock, path) = target(&uri, STATES)?;
    let StateQuery { id } = query(&uri)?;
    let op = Op::Delete {
        path: path.clone(),
        version: ANY_VERSION,
    };
    change(&api, &peer, (lock, path), id, op).await
}
