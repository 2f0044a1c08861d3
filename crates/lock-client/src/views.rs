//! Views of locks and sessions, and the operations of an operator. `more` has the fields of newer servers.

use hyper::Method;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::client::LockClient;
use crate::encode;
use crate::error::{Code, Error};
use crate::fencing_token::FencingToken;
use crate::http::ApiRequest;
use crate::options::Mode;
use crate::servers::request_id;

/// Number of items in a page of a list: the maximum of a server.
const PAGE: usize = 1000;

/// Lock in the list of locks.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct LockSummary {
    /// Name.
    pub lock: String,
    /// Mode; `None` while the lock is not in use.
    pub mode: Option<Mode>,
    /// Number of holders.
    pub holders: u32,
    /// Number of waiters.
    pub waiters: u32,
    /// Other fields of the answer.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Lock with its holders and waiters.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct LockView {
    /// Name.
    pub lock: String,
    /// Mode; `None` while the lock is not in use.
    pub mode: Option<Mode>,
    /// Limit of a semaphore.
    pub limit: Option<u32>,
    /// `true` while the lock is drained: it takes no new contenders.
    #[serde(default)]
    pub draining: bool,
    /// Holders.
    pub holders: Vec<Contender>,
    /// Waiters, in queue order.
    pub queue: Vec<Contender>,
    /// Other fields of the answer.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl LockView {
    /// Returns the number of all holders. The view has only the first ones of many.
    pub fn holding(&self) -> usize {
        self.in_all("holding").unwrap_or(self.holders.len())
    }

    /// Returns the number of all waiters. The view has only the first ones of many.
    pub fn waiting(&self) -> usize {
        self.in_all("waiting").unwrap_or(self.queue.len())
    }

    /// Returns whether the view has all holders and waiters.
    pub fn is_complete(&self) -> bool {
        self.holders.len() >= self.holding() && self.queue.len() >= self.waiting()
    }

    /// Names of znodes that the lock ignores and recipes of ZooKeeper clients wait for: they are named like contenders and belong to no
    /// session.
    pub fn blocking_znodes(&self) -> impl Iterator<Item = &str> {
        let names = self.more.get("blocking_znodes").and_then(Value::as_array);
        names.into_iter().flatten().filter_map(Value::as_str)
    }

    fn in_all(&self, field: &str) -> Option<usize> {
        let number = self.more.get(field)?.as_u64()?;
        usize::try_from(number).ok()
    }
}

/// Contender of a lock, holding or waiting.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Contender {
    /// Id of the contender.
    pub holder: String,
    /// Session.
    pub session: String,
    /// Scope of re-entry within the session.
    pub owner: String,
    /// Text of the caller.
    pub note: String,
    /// Mode that it holds or waits for.
    pub mode: Mode,
    /// Number of permits.
    pub permits: u32,
    /// Number of holds of its owner.
    pub holds: u32,
    /// Fencing token of the grant.
    pub fencing_token: FencingToken,
    /// Time since which it holds or waits (RFC 3339).
    pub since_at: String,
    /// Address of the caller.
    pub address: String,
    /// Position in the queue, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u32>,
    /// Other fields of the answer.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Session, as the list of sessions shows it.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct SessionView {
    /// Id.
    pub session: String,
    /// Name.
    pub name: String,
    /// TTL.
    pub ttl_ms: u64,
    /// Age.
    pub age_ms: u64,
    /// Address from which it was opened.
    pub address: String,
    /// Locks that it holds.
    pub held: Vec<SessionLock>,
    /// Locks that it waits for.
    pub awaited: Vec<SessionLock>,
    /// Other fields of the answer.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Contender of a session.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct SessionLock {
    /// Name of the lock.
    pub lock: String,
    /// Id of the contender.
    pub holder: String,
}

/// Page of a list, whatever the field of its items is called.
#[derive(Deserialize)]
struct Page<T> {
    #[serde(
        alias = "locks",
        alias = "sessions",
        alias = "tokens",
        alias = "roles",
        alias = "certificates",
        alias = "namespaces"
    )]
    items: Vec<T>,
    next_cursor: Option<String>,
}

impl LockClient {
    /// Returns the locks whose names begin with `prefix`, by name. The client reads pages, so the list is not of one moment.
    pub async fn locks(&self, prefix: &str) -> Result<Vec<LockSummary>, Error> {
        let prefix = encode::segment(prefix);
        self.all(&format!("/v1/locks?prefix={prefix}&holders=true&"))
            .await
    }

    /// Returns one lock; `None` if it does not exist, which means that it is free.
    pub async fn lock(&self, name: &str) -> Result<Option<LockView>, Error> {
        let path = format!("/v1/locks/{}?linearizable=true", encode::lock(name));
        match self.servers.ask(&ApiRequest::get(path)).await {
            Ok(view) => Ok(Some(view)),
            Err(error) if error.is(Code::NoLock) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns all sessions.
    pub async fn sessions(&self) -> Result<Vec<SessionView>, Error> {
        self.all("/v1/sessions?").await
    }

    /// Ends a session of any program, with all its locks. Its program sees an expiry ([`Loss::Expired`](crate::Loss::Expired)). Succeeds if
    /// the session has ended already.
    pub async fn end_session(&self, session: &str) -> Result<(), Error> {
        let call = ApiRequest::delete(format!(
            "/v1/sessions/{}?request_id={}",
            encode::segment(session),
            request_id()
        ));
        match self.servers.call(&call).await {
            Err(Error::Refused(refusal)) if refusal.ends_session() => Ok(()),
            other => other.map(drop),
        }
    }

    /// Breaks the lock of a holder, or removes a waiter, even if its program still works under the lock.
    pub async fn break_lock(&self, name: &str, holder: &str, reason: &str) -> Result<(), Error> {
        let body = json!({ "holder": holder, "reason": reason, "request_id": request_id() });
        let path = format!("/v1/locks/{}/break", encode::segment(name));
        let call = ApiRequest::with(Method::POST, path, &body);
        self.servers.call(&call).await.map(drop)
    }

    /// Requests the holders of a lock, or one of them, to release it. They decide whether to do so. Returns the number of requests.
    pub async fn request_release(
        &self,
        name: &str,
        holder: Option<&str>,
        reason: &str,
    ) -> Result<u32, Error> {
        #[derive(Deserialize)]
        struct Answer {
            asked: u32,
        }
        let mut body = json!({ "reason": reason, "request_id": request_id() });
        if let Some(holder) = holder {
            body["holder"] = holder.into();
        }
        let path = format!("/v1/locks/{}/release-request", encode::segment(name));
        let answer: Answer = self
            .servers
            .ask(&ApiRequest::with(Method::POST, path, &body))
            .await?;
        Ok(answer.asked)
    }

    /// Drains a lock, or ends that: while it is drained, it takes no new contenders. Holders stay.
    pub async fn drain(&self, name: &str, draining: bool) -> Result<(), Error> {
        self.configure(name, json!({ "draining": draining, "request_id": request_id() }))
            .await
    }

    /// Sets the limit of a semaphore, also while it is in use: holders keep their permits. With `None` the limit is again that of its first
    /// user.
    pub async fn set_limit(&self, name: &str, limit: Option<u32>) -> Result<(), Error> {
        self.configure(name, json!({ "limit": limit, "request_id": request_id() }))
            .await
    }

    async fn configure(&self, name: &str, body: Value) -> Result<(), Error> {
        let path = format!("/v1/locks/{}", encode::lock(name));
        let call = ApiRequest::with(Method::PATCH, path, &body);
        self.servers.call(&call).await.map(drop)
    }

    /// Returns all items of a list; `path` ends with `?` or `&`.
    pub(crate) async fn all<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>, Error> {
        let (mut items, mut after) = (Vec::new(), String::new());
        loop {
            let call = ApiRequest::get(format!("{path}linearizable=true&limit={PAGE}{after}"));
            let mut page: Page<T> = self.servers.ask(&call).await?;
            items.append(&mut page.items);
            match page.next_cursor {
                Some(last) => after = format!("&cursor={}", encode::segment(&last)),
                None => return Ok(items),
            }
        }
    }
}
