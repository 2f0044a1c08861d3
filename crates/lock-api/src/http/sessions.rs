//! Routes of sessions: open, heartbeat, close, get, ephemerals, list. The leader keeps the deadlines.

use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::Uri;
use serde::Deserialize;
use utoipa::IntoParams;
use znode_store::{
    Command, MAX_LOOKED_AT, Principal, Refusal, Request, RequestId, SessionFate, SessionId, SessionView,
    Store, ZPath, Zxid,
};

use super::audit;
use super::extract::{
    HandlerResult, MAX_PAGE, ReadQuery, created, ensure_freshness, no_content, no_query, ok, page_length,
    parse, query, read_body, session_id,
};
use super::lock_types::within;
use super::openapi::words;
use super::problem::Problem;
use super::session_types::{
    BareBody, EphemeralsAnswer, HeartbeatAnswer, MAX_SESSION_NAME_BYTES, OpenAnswer, OpenBody,
    ReleaseRequestAnswer, SessionAnswer, SessionsAnswer,
};
use super::url::decode;
use super::{Api, Peer, Shared};

/// Number of ephemeral znodes of each session that a list of sessions examines.
const LISTED_LOCKS: usize = 100;

/// Prefix of the addresses of all sessions.
const PREFIX: &str = "/v1/sessions/";

/// Parses the id of the session in an address.
pub fn target(uri: &Uri) -> Result<SessionId, Problem> {
    let rest = uri.path().strip_prefix(PREFIX).expect("the route begins with it");
    let segment = rest.split('/').next().unwrap_or_default();
    session_id(&decode(segment).unwrap_or_default())
}

/// `POST /v1/sessions`
pub async fn open(State(api): State<Shared>, peer: Peer, uri: Uri, body: Body) -> HandlerResult {
    no_query(&uri)?;
    let bytes = read_body(body, api.config().max_body_bytes, api.config().body_timeout).await?;
    let body: OpenBody<'_> = parse(&bytes)?;
    within("name", &body.name, MAX_SESSION_NAME_BYTES)?;
    let timeout = body.ttl_ms.map(Duration::from_millis);
    let request_id = peer.request_id(body.request_id)?;
    let opened = api
        .node
        .open_session_of(peer.identities(), timeout, &body.name, &peer.shown(), request_id)
        .await?;
    let answer = OpenAnswer {
        session: opened.session.to_string(),
        ttl_ms: opened.timeout.as_millis() as u64,
    };
    Ok(created(&format!("{PREFIX}{}", opened.session), &answer))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct HeartbeatQuery {
    /// Report whether the node that answers is the leader.
    #[serde(default)]
    leader: bool,
}

/// `POST /v1/sessions/{session}/heartbeat`
pub async fn heartbeat(State(api): State<Shared>, peer: Peer, uri: Uri, body: Body) -> HandlerResult {
    let HeartbeatQuery { leader } = query(&uri)?;
    let session = target(&uri)?;
    let config = api.config();
    let bytes = read_body(body, config.max_body_bytes, config.body_timeout).await?;
    // Only validated: a heartbeat with unknown fields is rejected like every other request.
    let BareBody { request_id } = parse(&bytes)?;
    peer.request_id(request_id)?;
    may_use(&api, &peer, session).await?;
    match api.node.heartbeat(session).await {
        Ok(ttl) => Ok(ok(&HeartbeatAnswer {
            ttl_ms: ttl.as_millis() as u64,
            leads: leader.then(|| api.node.leads()),
            release_requested: api
                .locks
                .revocations(session)
                .into_iter()
                .map(ReleaseRequestAnswer::from)
                .collect(),
        })),
        Err(error) => Err(Problem::of_heartbeat(error, session)),
    }
}

/// Rejects the use of another caller's session. If this node does not know the owner of the session yet, it catches up
/// first. Otherwise a request that the leader answers, such as a heartbeat, would be executed for every caller.
async fn may_use(api: &Api, peer: &Peer, session: SessionId) -> Result<(), Problem> {
    let caller = peer.identities();
    let is_behind = |store: &Store| store.is_secured() && store.session_fate(session) == SessionFate::Unknown;
    if api.node.read_facts(is_behind) {
        api.node.read_barrier().await?;
    }
    api.node
        .read_facts(|store| store.seen_by(&caller).may_use(session))?;
    Ok(())
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CloseQuery {
    #[param(value_type = Option<words::RequestId>)]
    request_id: Option<RequestId>,
    /// Reason, for the audit log; for an administrator that closes another owner's session.
    #[param(value_type = Option<words::Reason>)]
    reason: Option<String>,
}

/// `DELETE /v1/sessions/{session}`
pub async fn close(State(api): State<Shared>, peer: Peer, uri: Uri) -> HandlerResult {
    let session = target(&uri)?;
    let CloseQuery { request_id, reason } = query(&uri)?;
    let request_id = peer.request_id(request_id)?;
    // The remembered requests of a session end with it, so a repeated close is recognized by its result: a caller that
    // sends a request id may have sent the request before, and has reached its goal.
    let repeated = request_id.is_some();
    let request = Request {
        session: Some(session),
        request_id,
        caller: peer.identities(),
        command: Command::CloseSession { session },
    };
    let closing = api.node.propose(request);
    // The audit log gets the close of another caller's session, and every close with a reason.
    let audited = match (is_anothers(&api, &peer, session), &reason) {
        (Some(owner), _) => Some(format!("session {session} of {owner}")),
        (None, Some(_)) => Some(format!("session {session}")),
        (None, None) => None,
    };
    let outcome = match audited {
        None => closing.await?.outcome,
        Some(what) => {
            let entry = api.audit_log.begin(
                &peer,
                "close_session",
                audit::with_reason(what, reason.as_deref())?,
            );
            let closed = async { Ok::<_, Problem>(closing.await?.outcome?) }.await;
            entry.end(closed)?;
            return Ok(no_content());
        }
    };
    match outcome {
        Ok(_) => Ok(no_content()),
        Err(Refusal::SessionEnded(_)) if repeated => Ok(no_content()),
        Err(refusal) => Err(refusal.into()),
    }
}

/// Returns the owner of a session if this node knows it and it is not the caller. Without authentication there are no
/// other owners.
fn is_anothers(api: &Api, peer: &Peer, session: SessionId) -> Option<Principal> {
    let caller = peer.identities();
    let owner = api.node.read_facts(|store| store.session(session))?.owner;
    (!owner.is(&caller)).then_some(owner)
}

/// `GET /v1/sessions/{session}`
pub async fn get(State(api): State<Shared>, peer: Peer, uri: Uri) -> HandlerResult {
    let session = target(&uri)?;
    let params: ReadQuery = query(&uri)?;
    ensure_freshness(&api, params.linearizable).await?;
    let (now_ms, caller) = (api.node.now_ms(), peer.identities());
    let found = api.node.read(|store| {
        let view = store.seen_by(&caller).session(session)?;
        Ok::<_, Refusal>(SessionAnswer::new(store, view, now_ms, MAX_PAGE))
    })?;
    Ok(ok(&with_heartbeat(&api, found, now_ms)))
}

fn with_heartbeat(api: &Api, (session, answer): (SessionId, SessionAnswer), now_ms: u64) -> SessionAnswer {
    let silent_for = api.node.silence(session);
    answer.last_heartbeat(silent_for.map(|silence| now_ms.saturating_sub(silence.as_millis() as u64)))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EphemeralsQuery {
    /// Only paths that begin with this.
    #[serde(default)]
    prefix: String,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
    #[param(value_type = Option<words::PageLimit>)]
    limit: Option<usize>,
    /// Wait until this node has applied everything that was committed before.
    #[serde(default)]
    linearizable: bool,
}

/// Parses the cursor of a page of ephemeral znodes: the position at which the last one was created, and its path.
fn ephemeral_cursor(text: &str) -> Result<(Zxid, ZPath), Problem> {
    let wrong = || Problem::bad_request("cursor is not a next_cursor of the page before");
    let (position, _) = text.split_once('/').ok_or_else(wrong)?;
    let path = ZPath::parse(&text[position.len()..]).map_err(|_| wrong())?;
    Ok((Zxid(position.parse().map_err(|_| wrong())?), path))
}

/// `GET /v1/sessions/{session}/ephemerals`
pub async fn ephemerals(State(api): State<Shared>, peer: Peer, uri: Uri) -> HandlerResult {
    let session = target(&uri)?;
    let params: EphemeralsQuery = query(&uri)?;
    let limit = page_length(params.limit)?;
    ensure_freshness(&api, params.linearizable).await?;
    let after = params.cursor.as_deref().map(ephemeral_cursor).transpose()?;
    let caller = peer.identities();
    let page = api.node.read(|store| {
        let view = store.seen_by(&caller);
        view.ephemerals_page(session, &params.prefix, after.as_ref(), limit)
    })?;
    let next_cursor = page
        .next_after
        .map(|(position, path)| format!("{}{path}", position.0));
    Ok(ok(&EphemeralsAnswer {
        ephemerals: page.paths.iter().map(ZPath::as_str).collect(),
        next_cursor: next_cursor.as_deref(),
    }))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// Only sessions whose names or ids begin with this.
    #[serde(default)]
    prefix: String,
    /// Last id of the page before.
    #[param(value_type = Option<words::SessionId>)]
    cursor: Option<String>,
    #[param(value_type = Option<words::PageLimit>)]
    limit: Option<usize>,
    /// Wait until this node has applied everything that was committed before.
    #[serde(default)]
    linearizable: bool,
}

fn is_called(view: &SessionView, prefix: &str) -> bool {
    prefix.is_empty() || view.name.starts_with(prefix) || view.session.to_string().starts_with(prefix)
}

/// `GET /v1/sessions`
pub async fn list(State(api): State<Shared>, peer: Peer, uri: Uri) -> HandlerResult {
    let params: ListQuery = query(&uri)?;
    let limit = page_length(params.limit)?;
    let after = params.cursor.as_deref().map(session_id).transpose()?;
    ensure_freshness(&api, params.linearizable).await?;
    let (now_ms, caller) = (api.node.now_ms(), peer.identities());
    let (sessions, next_cursor) = api.node.read(|store| {
        let view = store.seen_by(&caller);
        let page = view.sessions_page(after, limit, |view| is_called(view, &params.prefix))?;
        let (mut sessions, mut next_cursor) = (Vec::new(), page.next_after);
        let (mut looks, all) = (MAX_LOOKED_AT, page.sessions.len());
        for view in page.sessions {
            // Each session with some of its locks only: a page may have a thousand sessions, and a session many locks.
            let most = looks.min(LISTED_LOCKS);
            looks -= most.min(view.ephemerals as usize);
            let session = view.session;
            sessions.push(SessionAnswer::new(store, view, now_ms, most));
            if looks == 0 {
                if sessions.len() < all {
                    next_cursor = Some(session);
                }
                break;
            }
        }
        Ok::<_, Refusal>((sessions, next_cursor))
    })?;
    let sessions = sessions
        .into_iter()
        .map(|found| with_heartbeat(&api, found, now_ms))
        .collect();
    Ok(ok(&SessionsAnswer {
        sessions,
        next_cursor: next_cursor.map(|session| session.to_string()),
    }))
}
