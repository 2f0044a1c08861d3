//! The routes of locks: acquire, release, break, look, check, list. They only translate: what a call means is
//! the business of [`crate::locks`].

use axum::body::Body;
use axum::extract::State;
use axum::http::{Method, Uri};
use serde::Deserialize;
use znode_store::{LockName, Zxid};

use super::exchange::{
    Answer, ReadQuery, fresh, no_content, no_query, ok, page_length, parse, query, read_body, session_id,
};
use super::lock_types::{
    AcquireBody, BreakBody, CheckAnswer, GrantAnswer, LockAnswer, LocksAnswer, MAX_HOLDER_BYTES,
    MAX_REASON_BYTES, ReleaseAnswer, ReleaseBody, SummaryAnswer, within,
};
use super::problem::Problem;
use super::url::{Verb, lock_and_verb};
use super::{Api, Peer, Shared, history};
use crate::locks::Locks;

/// What all addresses of locks begin with.
const PREFIX: &str = "/v1/locks/";

fn target(uri: &Uri) -> Result<(LockName, Option<Verb>), Problem> {
    lock_and_verb(uri.path().strip_prefix(PREFIX).expect("the route begins with it"))
}

/// The lock service on behalf of whoever calls.
fn locks_of(api: &Api, peer: &Peer) -> Locks {
    api.locks.on_behalf_of(peer.identities())
}

/// `POST /v1/locks/{name}/{verb}`
pub async fn act(State(api): State<Shared>, peer: Peer, method: Method, uri: Uri, body: Body) -> Answer {
    let (lock, verb) = target(&uri)?;
    no_query(&uri)?;
    let read = || read_body(body, api.config.max_body_bytes, api.config.body_timeout);
    match verb {
        Some(Verb::Acquire) => acquire(&api, lock, peer, &read().await?).await,
        Some(Verb::Release) => release(&api, lock, peer, &read().await?).await,
        Some(Verb::Break) => break_holder(&api, lock, peer, &read().await?).await,
        Some(Verb::Reserved) => Err(Problem::no_route(uri.path())),
        Some(verb @ (Verb::Check | Verb::History)) => {
            Err(Problem::method_not_allowed(method.as_str(), Some(verb.method())))
        }
        None => Err(Problem::method_not_allowed(method.as_str(), Some("GET,HEAD"))),
    }
}

async fn acquire(api: &Api, lock: LockName, peer: Peer, body: &[u8]) -> Answer {
    let asked = parse::<AcquireBody<'_>>(body)?.check(lock, peer.shown())?;
    // If the caller hangs up, this future is dropped, and with it the place in the queue.
    let grant = locks_of(api, &peer)
        .acquire_again(
            asked.session,
            asked.wish,
            asked.wait,
            asked.request_id,
            asked.retry,
        )
        .await?;
    Ok(ok(&GrantAnswer::from(&grant)))
}

async fn release(api: &Api, lock: LockName, peer: Peer, body: &[u8]) -> Answer {
    let body: ReleaseBody<'_> = parse(body)?;
    within("holder", &body.holder, MAX_HOLDER_BYTES)?;
    let session = session_id(&body.session)?;
    let holds = locks_of(api, &peer)
        .release(session, lock, body.holder.into_owned(), body.request_id)
        .await?;
    Ok(ok(&ReleaseAnswer { holds }))
}

async fn break_holder(api: &Api, lock: LockName, peer: Peer, body: &[u8]) -> Answer {
    let body: BreakBody<'_> = parse(body)?;
    within("holder", &body.holder, MAX_HOLDER_BYTES)?;
    within("reason", &body.reason, MAX_REASON_BYTES)?;
    locks_of(api, &peer)
        .break_holder(
            lock,
            body.holder.into_owned(),
            &peer.shown(),
            &body.reason,
            body.request_id,
        )
        .await?;
    Ok(no_content())
}

/// `GET /v1/locks/{name}`, `GET /v1/locks/{name}/check` and `GET /v1/locks/{name}/history`
pub async fn look(State(api): State<Shared>, peer: Peer, method: Method, uri: Uri) -> Answer {
    let (lock, verb) = target(&uri)?;
    match verb {
        None => one(&api, &peer, &uri, lock).await,
        Some(Verb::Check) => check(&api, &peer, &uri, lock).await,
        Some(Verb::History) => history::look(&api, locks_of(&api, &peer), &uri, lock).await,
        Some(Verb::Reserved) => Err(Problem::no_route(uri.path())),
        Some(verb @ (Verb::Acquire | Verb::Release | Verb::Break)) => {
            Err(Problem::method_not_allowed(method.as_str(), Some(verb.method())))
        }
    }
}

async fn one(api: &Api, peer: &Peer, uri: &Uri, lock: LockName) -> Answer {
    let asked: ReadQuery = query(uri)?;
    fresh(api, asked.linearizable).await?;
    let view = locks_of(api, peer).get(&lock)?;
    Ok(ok(&LockAnswer::from(&view)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckQuery {
    fencing_token: u64,
}

async fn check(api: &Api, peer: &Peer, uri: &Uri, lock: LockName) -> Answer {
    let CheckQuery { fencing_token } = query(uri)?;
    let held = locks_of(api, peer).check(&lock, Zxid(fencing_token)).await?;
    Ok(ok(&CheckAnswer { held }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    #[serde(default)]
    prefix: String,
    after: Option<String>,
    count: Option<usize>,
    #[serde(default)]
    linearizable: bool,
}

/// `GET /v1/locks`
pub async fn list(State(api): State<Shared>, peer: Peer, uri: Uri) -> Answer {
    let asked: ListQuery = query(&uri)?;
    let count = page_length(asked.count)?;
    fresh(&api, asked.linearizable).await?;
    let after = asked.after.as_deref();
    let page = locks_of(&api, &peer).list(&asked.prefix, after, count);
    Ok(ok(&LocksAnswer {
        locks: page.locks.iter().map(SummaryAnswer::from).collect(),
        next_after: page.next_after.as_ref().map(LockName::as_str),
    }))
}
