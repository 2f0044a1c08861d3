//! Routes of several locks at once: acquire, release. [`crate::locks`] decides what a call does.

use std::borrow::Cow;

use axum::body::Body;
use axum::extract::State;
use axum::http::Uri;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use znode_store::{HolderId, LockName, MAX_LOCKS_AT_ONCE, RequestId};

use super::extract::{HandlerResult, no_query, ok, parse, read_body, session_id};
use super::lock_types::{
    GrantAnswer, MAX_HOLDER_BYTES, ModeWord, NamesWord, Wanted, no_wait, wait_for, within,
};
use super::locks::{granted, locks_of, waiting_locks_of, waiting_share};
use super::openapi::words;
use super::problem::Problem;
use super::{Api, Peer, Shared};
use crate::locks::WaitFor;

/// Body of `POST /v1/multilock/acquire`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = MultilockAcquireBody)]
pub struct AcquireBody<'a> {
    #[serde(borrow)]
    #[schema(value_type = words::SessionId)]
    session: Cow<'a, str>,
    /// Locks, each once.
    #[serde(borrow)]
    locks: Vec<WantedLock<'a>>,
    #[serde(default = "no_wait", deserialize_with = "wait_for")]
    #[schema(value_type = words::WaitMs)]
    wait_ms: WaitFor,
    #[serde(borrow, default)]
    #[schema(value_type = words::Owner)]
    owner: Cow<'a, str>,
    #[serde(borrow, default)]
    #[schema(value_type = words::Note)]
    note: Cow<'a, str>,
    #[schema(value_type = Option<words::RequestId>)]
    request_id: Option<RequestId>,
    #[schema(value_type = Option<words::Retry>)]
    retry: Option<u16>,
}

/// One of the locks.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WantedLock<'a> {
    #[serde(borrow)]
    #[schema(value_type = words::LockName)]
    name: Cow<'a, str>,
    #[serde(default)]
    mode: ModeWord,
    #[schema(value_type = Option<words::Limit>)]
    limit: Option<u32>,
    #[schema(value_type = Option<words::Permits>)]
    permits: Option<u32>,
    /// Allow the owner to acquire again what it holds. Default: `true`, except for semaphores.
    reentrant: Option<bool>,
    #[serde(default)]
    #[schema(value_type = words::LockDelayMs)]
    lock_delay_ms: u32,
    #[serde(default)]
    names: NamesWord,
}

/// Body of `POST /v1/multilock/release`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = MultilockReleaseBody)]
pub struct ReleaseBody<'a> {
    #[serde(borrow)]
    #[schema(value_type = words::SessionId)]
    session: Cow<'a, str>,
    /// Holds to release.
    #[serde(borrow)]
    holders: Vec<HeldLock<'a>>,
    #[schema(value_type = Option<words::RequestId>)]
    request_id: Option<RequestId>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeldLock<'a> {
    #[serde(borrow)]
    #[schema(value_type = words::LockName)]
    lock: Cow<'a, str>,
    #[serde(borrow)]
    #[schema(value_type = words::Holder)]
    holder: Cow<'a, str>,
}

#[derive(Serialize, ToSchema)]
pub struct GrantsAnswer<'a> {
    /// Grants, in the order of the request.
    holders: Vec<GrantAnswer<'a>>,
}

#[derive(Serialize, ToSchema)]
pub struct ReleasedAnswer<'a> {
    /// Results, in the order of the request.
    released: Vec<Released<'a>>,
}

#[derive(Serialize, ToSchema)]
pub struct Released<'a> {
    #[schema(value_type = words::LockName)]
    lock: &'a LockName,
    #[schema(value_type = words::Holder)]
    holder: &'a HolderId,
    /// Number of holds that remain; `null`: the session does not hold the lock (any more).
    #[schema(required)]
    holds: Option<u32>,
}

/// `POST /v1/multilock/acquire`
pub async fn acquire(State(api): State<Shared>, peer: Peer, uri: Uri, body: Body) -> HandlerResult {
    let bytes = body_of(&api, &uri, body).await?;
    let body: AcquireBody<'_> = parse(&bytes)?;
    within_bound("locks", body.locks.len())?;
    let wishes = body.locks.iter().map(|lock| {
        let wanted = Wanted {
            mode: lock.mode,
            limit: lock.limit,
            permits: lock.permits,
            owner: &body.owner,
            reentrant: lock.reentrant,
            note: &body.note,
            lock_delay_ms: lock.lock_delay_ms,
            names: lock.names,
        };
        let name = LockName::parse(&lock.name).map_err(Problem::bad_lock_name)?;
        wanted.check(name, peer.shown())
    });
    let wishes = wishes.collect::<Result<Vec<_>, Problem>>()?;
    let session = session_id(&body.session)?;
    let (request_id, retry) = (peer.request_id(body.request_id)?, body.retry.unwrap_or_default());
    let locks = waiting_locks_of(&api, &peer);
    let _share = waiting_share(&api, &peer, body.wait_ms.may_wait())?;
    let started = locks.begin_acquire_many(session, wishes, body.wait_ms, request_id, retry);
    let grants = granted(&api, &peer, session, started.await?).await?;
    Ok(ok(&GrantsAnswer {
        holders: grants.iter().map(GrantAnswer::from).collect(),
    }))
}

/// `POST /v1/multilock/release`
pub async fn release(State(api): State<Shared>, peer: Peer, uri: Uri, body: Body) -> HandlerResult {
    let bytes = body_of(&api, &uri, body).await?;
    let body: ReleaseBody<'_> = parse(&bytes)?;
    within_bound("holders", body.holders.len())?;
    let holders = body.holders.iter().map(|held| {
        within("holder", &held.holder, MAX_HOLDER_BYTES)?;
        let lock = LockName::parse(&held.lock).map_err(Problem::bad_lock_name)?;
        Ok((lock, HolderId::from(&*held.holder)))
    });
    let holders = holders.collect::<Result<Vec<_>, Problem>>()?;
    let session = session_id(&body.session)?;
    let holds = locks_of(&api, &peer)
        .release_many(session, holders.clone(), peer.request_id(body.request_id)?)
        .await?;
    let released = holders.iter().zip(holds);
    Ok(ok(&ReleasedAnswer {
        released: released
            .map(|((lock, holder), holds)| Released { lock, holder, holds })
            .collect(),
    }))
}

async fn body_of(api: &Api, uri: &Uri, body: Body) -> Result<bytes::Bytes, Problem> {
    no_query(uri)?;
    read_body(body, api.config().max_body_bytes, api.config().body_timeout).await
}

fn within_bound(field: &str, count: usize) -> Result<(), Problem> {
    match count {
        1..=MAX_LOCKS_AT_ONCE => Ok(()),
        _ => Err(Problem::bad_request(format!(
            "{field} names 1 to {MAX_LOCKS_AT_ONCE} locks"
        ))),
    }
}
