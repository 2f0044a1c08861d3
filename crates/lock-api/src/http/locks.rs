//! Routes of locks: acquire, release, downgrade, upgrade, release request, break, configure, get, check, list,
//! graph. They translate between HTTP and [`crate::locks`], which decides what a call does.

use std::borrow::Cow;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use listener::Share;
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::IntoParams;
use znode_store::{ContenderEnd, Downgraded, Grant, LockName, Right, SessionId, View, Zxid};

use super::audit;
use super::auth::{RevocationWatch, while_allowed};
use super::extract::{
    HandlerResult, MAX_PAGE, ensure_freshness, json, no_content, no_query, ok, page_length, parse, query,
    read_body, session_id,
};
use super::lease_types::lease_text;
use super::lock_types::{
    Acquire, AcquireBody, BreakBody, CheckAnswer, ConfigureBody, DowngradeBody, GrantAnswer, GraphAnswer,
    LockAnswer, LocksAnswer, MAX_HOLDER_BYTES, MAX_REASON_BYTES, QueuedAnswer, ReleaseAnswer, ReleaseBody,
    ReleaseReplyBody, ReleaseRequestBody, RequestedAnswer, Requester, SeenLock, SessionNames, SummaryAnswer,
    UpgradeBody, WaitAnswer, check_limit, within,
};
use super::openapi::words;
use super::problem::{Code, Problem};
use super::url::{LOCKS, Verb, last_segment, lock_and_verb};
use super::watch::MAX_TIMEOUT_MS;
use super::{Api, Peer, Shared, history};
use crate::locks::{LockError, Locks, PlaceOutcome, Queued, Started, only};

/// Methods of a lock's own address.
const OF_A_LOCK: &str = "GET,HEAD,PATCH";

fn target(uri: &Uri) -> Result<(LockName, Option<Verb>), Problem> {
    lock_and_verb(uri.path().strip_prefix(LOCKS).expect("the route begins with it"))
}

/// Returns the lock service on behalf of the caller.
pub fn locks_of(api: &Api, peer: &Peer) -> Locks {
    api.locks.on_behalf_of(peer.identities())
}

/// Returns the lock service for a call that may wait: if its connection breaks, the same request finds its place in the
/// queue again.
pub fn waiting_locks_of(api: &Api, peer: &Peer) -> Locks {
    locks_of(api, peer).with_disconnect_grace(api.config().waiter_grace)
}

/// `POST /v1/locks/{name}/{verb}`
pub async fn act(
    State(api): State<Shared>,
    peer: Peer,
    method: Method,
    uri: Uri,
    body: Body,
) -> HandlerResult {
    let (lock, verb) = target(&uri)?;
    let read = async || {
        no_query(&uri)?;
        let config = api.config();
        read_body(body, config.max_body_bytes, config.body_timeout).await
    };
    match verb {
        Some(Verb::Acquire) => acquire(&api, lock, peer, &read().await?).await,
        Some(Verb::Release) => release(&api, lock, peer, &read().await?).await,
        Some(Verb::Break) => break_holder(&api, lock, peer, &read().await?).await,
        Some(Verb::Downgrade) => downgrade(&api, lock, peer, &read().await?).await,
        Some(Verb::Upgrade) => upgrade(&api, lock, peer, &read().await?).await,
        Some(Verb::ReleaseRequest) => request_release(&api, lock, peer, &read().await?).await,
        Some(Verb::ReleaseReply) => reply_to_release_request(&api, lock, peer, &read().await?).await,
        Some(verb @ (Verb::Check | Verb::History | Verb::Holder)) => {
            Err(Problem::method_not_allowed(method.as_str(), Some(verb.method())))
        }
        None => Err(not_an_action(&method, &lock)),
    }
}

/// Takes one of the caller's waiting calls at this node, unless the call does not wait. It is taken before the call is proposed: a call that is refused
/// afterwards costs the cluster two commits.
pub fn waiting_share(api: &Api, peer: &Peer, waits: bool) -> Result<Option<Share>, Problem> {
    if !waits {
        return Ok(None);
    }
    let most = api.config().max_waiting_calls_per_caller;
    match api.wait_shares.take_below(peer.shared_by(), 1, most) {
        Some(share) => Ok(Some(share)),
        None => {
            let detail = "this caller waits for too many locks at this node";
            Err(Problem::new(Code::TooManyRequests, detail).with("limit", most))
        }
    }
}

/// Waits for a started call as long as its caller is authorized and may take the locks. If the caller hangs up, this
/// future is dropped, and the call leaves the queue. It leaves the queue at once as well when the caller may not take
/// one of the locks any more.
pub async fn granted(
    api: &Api,
    peer: &Peer,
    session: SessionId,
    started: Started,
) -> Result<Vec<Grant>, LockError> {
    match started {
        // The state machine authorized the caller together with the grant.
        Started::Granted(grants) => Ok(grants),
        // Boxed: otherwise every request for a lock has room for its wait.
        Started::Queued(queued) => Box::pin(granted_later(api, peer, session, queued)).await,
    }
}

async fn granted_later(
    api: &Api,
    peer: &Peer,
    session: SessionId,
    queued: Queued,
) -> Result<Vec<Grant>, LockError> {
    let mut revocation = RevocationWatch::begin(&api.node, peer);
    let locks = queued.locks().to_vec();
    let may_wait = |view: View<'_>| {
        view.may_use(session)?;
        let mut znodes = locks.iter().map(LockName::znode);
        znodes.try_for_each(|znode| view.may(Right::Lock, znode))
    };
    queued.granted_unless(revocation.revoked(may_wait)).await
}

async fn acquire(api: &Api, lock: LockName, peer: Peer, body: &[u8]) -> HandlerResult {
    let call = parse::<AcquireBody<'_>>(body)?.check(lock, peer.shown())?;
    match call.requester {
        Requester::Session(session) => acquire_in_session(api, &peer, session, call).await,
        // Boxed: otherwise every request for a lock has a future of its size.
        Requester::Lease(ttl) => Box::pin(acquire_by_lease(api, &peer, ttl, call)).await,
    }
}

async fn acquire_in_session(api: &Api, peer: &Peer, session: SessionId, call: Acquire) -> HandlerResult {
    let locks = waiting_locks_of(api, peer);
    let request_id = peer.request_id(call.request_id)?;
    let _share = waiting_share(api, peer, call.wait.may_wait() && !call.is_queued)?;
    let started = locks.begin_acquire(session, call.wish, call.bounds, call.wait, request_id, call.retry);
    let started = started.await?;
    if call.is_queued
        && let Some(place) = locks.place_of(&started)
    {
        started.stay_in_queue();
        return Ok(json(StatusCode::ACCEPTED, &QueuedAnswer::new(&place, None)));
    }
    let grant = only(granted(api, peer, session, started).await?)?;
    Ok(ok(&GrantAnswer::from(&grant)))
}

async fn acquire_by_lease(api: &Api, peer: &Peer, ttl: Duration, call: Acquire) -> HandlerResult {
    let locks = waiting_locks_of(api, peer);
    let request_id = peer.request_id(call.request_id)?;
    let begun = Instant::now();
    let _share = waiting_share(api, peer, call.wait.may_wait() && !call.is_queued)?;
    let started = locks.begin_lease(ttl, call.wish, call.bounds, call.wait, request_id, call.retry);
    let (lease, started) = started.await?;
    if call.is_queued
        && let Some(place) = locks.place_of(&started)
    {
        started.stay_in_queue();
        let expires_in = lease.timeout.saturating_sub(begun.elapsed());
        let answer = QueuedAnswer::new(&place, Some((lease_text(&lease.key), expires_in)));
        return Ok(json(StatusCode::ACCEPTED, &answer));
    }
    let granted = granted(api, peer, lease.key.session, started);
    let (grants, renewed) = locks.keep_while(&lease, begun, granted).await?;
    let expires_in = lease.timeout.saturating_sub(renewed.elapsed());
    let grant = only(grants)?;
    Ok(ok(
        &GrantAnswer::from(&grant).with_lease(lease_text(&lease.key), expires_in)
    ))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct HolderQuery {
    /// Maximum wait for the grant.
    #[serde(default)]
    #[param(value_type = Option<words::GrantWaitMs>)]
    wait_ms: u64,
}

/// `GET /v1/locks/{name}/holders/{holder}`
async fn holder(api: &Api, peer: &Peer, uri: &Uri, lock: LockName) -> HandlerResult {
    let HolderQuery { wait_ms } = query(uri)?;
    if wait_ms > MAX_TIMEOUT_MS {
        return Err(Problem::bad_request(format!(
            "wait_ms is at most {MAX_TIMEOUT_MS}"
        )));
    }
    let holder = last_segment(uri)?.into_owned();
    within("holder", &holder, MAX_HOLDER_BYTES)?;
    let may_wait = |view: View<'_>| {
        let may_lock = view.may(Right::Lock, lock.znode());
        may_lock.or_else(|refusal| view.may(Right::Read, lock.znode()).map_err(|_| refusal))
    };
    let caller = peer.identities();
    api.node.read_facts(|store| may_wait(store.seen_by(&caller)))?;
    let locks = locks_of(api, peer);
    let wait = async {
        let time = Duration::from_millis(wait_ms);
        locks
            .wait_for_grant(&lock, &holder, time)
            .await
            .map_err(Problem::from)
    };
    match while_allowed(&api.node, peer, may_wait, wait).await? {
        PlaceOutcome::Granted(grant) => Ok(ok(&GrantAnswer::from(&grant))),
        PlaceOutcome::Waits => Ok(no_content()),
        PlaceOutcome::Gone(how) => {
            let ended = how.as_ref().map(ContenderEnd::word);
            Err(Problem::holder_gone(&lock, &holder, ended))
        }
    }
}

async fn release(api: &Api, lock: LockName, peer: Peer, body: &[u8]) -> HandlerResult {
    let body: ReleaseBody<'_> = parse(body)?;
    within("holder", &body.holder, MAX_HOLDER_BYTES)?;
    let session = session_id(&body.session)?;
    let holds = locks_of(api, &peer)
        .release(
            session,
            lock,
            body.holder.into_owned(),
            peer.request_id(body.request_id)?,
        )
        .await?;
    Ok(ok(&ReleaseAnswer { holds }))
}

async fn break_holder(api: &Api, lock: LockName, peer: Peer, body: &[u8]) -> HandlerResult {
    let body: BreakBody<'_> = parse(body)?;
    within("holder", &body.holder, MAX_HOLDER_BYTES)?;
    within("reason", &body.reason, MAX_REASON_BYTES)?;
    let request_id = peer.request_id(body.request_id)?;
    let what = format!("{} in the lock {lock}: {}", body.holder, body.reason);
    let entry = api.audit_log.begin(&peer, "break", what);
    let (locks, by) = (locks_of(api, &peer), peer.shown());
    let broken = locks.break_holder(lock, body.holder.into_owned(), &by, &body.reason, request_id);
    entry.end(broken.await)?;
    Ok(no_content())
}

async fn downgrade(api: &Api, lock: LockName, peer: Peer, body: &[u8]) -> HandlerResult {
    let body: DowngradeBody<'_> = parse(body)?;
    within("holder", &body.holder, MAX_HOLDER_BYTES)?;
    let (session, to) = (session_id(&body.session)?, Downgraded::from(body.mode));
    let grant = locks_of(api, &peer)
        .downgrade(
            session,
            lock,
            body.holder.into_owned(),
            to,
            peer.request_id(body.request_id)?,
        )
        .await?;
    Ok(ok(&GrantAnswer::from(&grant)))
}

async fn upgrade(api: &Api, lock: LockName, peer: Peer, body: &[u8]) -> HandlerResult {
    let body: UpgradeBody<'_> = parse(body)?;
    within("holder", &body.holder, MAX_HOLDER_BYTES)?;
    let (session, holder) = (session_id(&body.session)?, body.holder.into_owned());
    let (request_id, retry) = (peer.request_id(body.request_id)?, body.retry.unwrap_or_default());
    let locks = waiting_locks_of(api, &peer);
    let _share = waiting_share(api, &peer, body.wait_ms.may_wait())?;
    let started = locks.begin_upgrade(session, lock, holder, body.wait_ms, request_id, retry);
    let grant = only(granted(api, &peer, session, started.await?).await?)?;
    Ok(ok(&GrantAnswer::from(&grant)))
}

async fn request_release(api: &Api, lock: LockName, peer: Peer, body: &[u8]) -> HandlerResult {
    let body: ReleaseRequestBody<'_> = parse(body)?;
    if let Some(holder) = &body.holder {
        within("holder", holder, MAX_HOLDER_BYTES)?;
    }
    within("reason", &body.reason, MAX_REASON_BYTES)?;
    let request_id = peer.request_id(body.request_id)?;
    let holder = body.holder.map(Cow::into_owned);
    let whom = holder.as_deref().unwrap_or("all holders");
    let what = format!("{whom} of the lock {lock}: {}", body.reason);
    let entry = api.audit_log.begin(&peer, "release_request", what);
    let (locks, by) = (locks_of(api, &peer), peer.shown());
    let asked = locks.revoke(lock, holder, &by, &body.reason, request_id).await;
    let asked = entry.end(asked)?;
    Ok(ok(&RequestedAnswer { asked }))
}

async fn reply_to_release_request(api: &Api, lock: LockName, peer: Peer, body: &[u8]) -> HandlerResult {
    let body: ReleaseReplyBody<'_> = parse(body)?;
    within("holder", &body.holder, MAX_HOLDER_BYTES)?;
    within("answer", &body.answer, MAX_REASON_BYTES)?;
    let session = session_id(&body.session)?;
    let request_id = peer.request_id(body.request_id)?;
    locks_of(api, &peer)
        .answer_revoke(session, lock, body.holder.into_owned(), &body.answer, request_id)
        .await?;
    Ok(no_content())
}

/// Returns the problem of a `POST` to the address of a lock. Of all last segments that are no verb, a caller may mean
/// `revoke`, which was one.
fn not_an_action(method: &Method, lock: &LockName) -> Problem {
    let problem = Problem::method_not_allowed(method.as_str(), Some(OF_A_LOCK));
    match lock.as_str().ends_with("/revoke") {
        true => problem.because(
            "there is no revoke of a lock: use release-request, and release-request/reply to answer one",
        ),
        false => problem,
    }
}

/// Answers any other method at the address of a lock, or of one of its verbs.
pub async fn not_served(method: Method, uri: Uri) -> Problem {
    let verb = target(&uri).ok().and_then(|(_, verb)| verb);
    let allowed = verb.map_or(OF_A_LOCK, Verb::method);
    Problem::method_not_allowed(method.as_str(), Some(allowed))
}

/// `PATCH /v1/locks/{name}`
pub async fn configure(
    State(api): State<Shared>,
    peer: Peer,
    method: Method,
    uri: Uri,
    body: Body,
) -> HandlerResult {
    let (lock, verb) = target(&uri)?;
    if let Some(verb) = verb {
        return Err(Problem::method_not_allowed(method.as_str(), Some(verb.method())));
    }
    no_query(&uri)?;
    let bytes = read_body(body, api.config().max_body_bytes, api.config().body_timeout).await?;
    let body: ConfigureBody<'_> = parse(&bytes)?;
    if let Some(Some(limit)) = body.limit {
        check_limit(limit)?;
    }
    let (limit, draining, request_id) = (body.limit, body.draining, peer.request_id(body.request_id)?);
    let what = format!("the lock {lock}: limit {limit:?}, draining {draining:?}");
    let what = audit::with_reason(what, body.reason.as_deref())?;
    let entry = api.audit_log.begin(&peer, "configure", what);
    let locks = locks_of(&api, &peer);
    entry.end(locks.configure(lock, limit, draining, request_id).await)?;
    Ok(no_content())
}

/// `GET /v1/locks/{name}`, `GET /v1/locks/{name}/check` and `GET /v1/locks/{name}/history`
pub async fn get(State(api): State<Shared>, peer: Peer, method: Method, uri: Uri) -> HandlerResult {
    let (lock, verb) = target(&uri)?;
    match verb {
        None => one(&api, &peer, &uri, lock).await,
        Some(Verb::Check) => check(&api, &peer, &uri, lock).await,
        Some(Verb::Holder) => holder(&api, &peer, &uri, lock).await,
        Some(Verb::History) => history::get(&api, locks_of(&api, &peer), &uri, lock).await,
        Some(verb) => Err(Problem::method_not_allowed(method.as_str(), Some(verb.method()))),
    }
}

async fn one(api: &Api, peer: &Peer, uri: &Uri, lock: LockName) -> HandlerResult {
    let params: GetQuery = query(uri)?;
    let limit = params.limit.map(|limit| page_length(Some(limit))).transpose()?;
    ensure_freshness(api, params.linearizable).await?;
    let locks = locks_of(api, peer);
    let (view, all) = locks.get(&lock, limit.unwrap_or(MAX_PAGE))?;
    let names = api.node.read(|store| SessionNames::of_lock(store, &view));
    let is_complete = view.holders.len() + view.queue.len() == (all.holders + all.waiters) as usize;
    let mut answer = LockAnswer::new(&view, &names);
    if limit.is_some() || !is_complete {
        answer = answer.of(&all);
    }
    if !is_complete {
        answer = answer.incomplete();
    }
    Ok(ok(&answer))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GetQuery {
    /// Wait until this node has applied everything that was committed before.
    #[serde(default)]
    linearizable: bool,
    /// Maximum number of holders, and of waiters, in the answer, which then also has their total numbers. Absent: 1,000.
    #[param(value_type = Option<words::MostContenders>)]
    limit: Option<usize>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CheckQuery {
    #[param(value_type = words::Position)]
    fencing_token: u64,
}

async fn check(api: &Api, peer: &Peer, uri: &Uri, lock: LockName) -> HandlerResult {
    let CheckQuery { fencing_token } = query(uri)?;
    let held = locks_of(api, peer).check(&lock, Zxid(fencing_token)).await?;
    Ok(ok(&CheckAnswer { held }))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// Only names that begin with this.
    #[serde(default)]
    prefix: String,
    /// Last name of the page before.
    cursor: Option<String>,
    #[param(value_type = Option<words::PageLimit>)]
    limit: Option<usize>,
    /// Include the first holder of each lock.
    #[serde(default)]
    holders: bool,
    /// Wait until this node has applied everything that was committed before.
    #[serde(default)]
    linearizable: bool,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GraphQuery {
    /// Only names that begin with this.
    #[serde(default)]
    prefix: String,
    /// Wait until this node has applied everything that was committed before.
    #[serde(default)]
    linearizable: bool,
}

/// `GET /v1/lock-graph`
pub async fn graph(State(api): State<Shared>, peer: Peer, uri: Uri) -> HandlerResult {
    let params: GraphQuery = query(&uri)?;
    ensure_freshness(&api, params.linearizable).await?;
    let (waits, complete) = locks_of(&api, &peer).graph(&params.prefix).await?;
    let names = api.node.read(|store| SessionNames::of_waits(store, &waits));
    Ok(ok(&GraphAnswer {
        waits: waits.iter().map(|wait| WaitAnswer::new(wait, &names)).collect(),
        complete,
    }))
}

/// `GET /v1/locks`
pub async fn list(State(api): State<Shared>, peer: Peer, uri: Uri) -> HandlerResult {
    let params: ListQuery = query(&uri)?;
    let limit = page_length(params.limit)?;
    ensure_freshness(&api, params.linearizable).await?;
    let after = params.cursor.as_deref();
    let page = locks_of(&api, &peer).list(&params.prefix, after, limit)?;
    let seen: Vec<SeenLock> = match params.holders {
        // Of the locks on the page alone, so their number is bounded.
        true => api.node.read(|store| {
            let locks = page.locks.into_iter();
            locks.map(|lock| SeenLock::with_holder(store, lock)).collect()
        }),
        false => page.locks.into_iter().map(SeenLock::from).collect(),
    };
    Ok(ok(&LocksAnswer {
        locks: seen.iter().map(SummaryAnswer::from).collect(),
        next_cursor: page.next_after.as_ref().map(LockName::as_str),
    }))
}
