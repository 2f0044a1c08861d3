//! What there is to see of locks and sessions, and what an operator may do about a lock. Whatever a newer server says
//! beyond what is known here is kept under `more`.

use hyper::Method;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::client::LockClient;
use crate::encode;
use crate::error::{Code, Error};
use crate::http::Call;
use crate::servers::request_id;

/// How many items a page of a list has: the most that a server gives at once.
const PAGE: usize = 1000;

/// One lock in the list of locks.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct LockSummary {
    /// Its name.
    pub lock: String,
    /// How it is used; `None` while nobody uses it.
    pub mode: Option<String>,
    /// How many hold it.
    pub holders: u32,
    /// How many wait for it.
    pub waiters: u32,
    /// What else was said.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// One lock with all who hold it and wait for it.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct LockView {
    /// Its name.
    pub lock: String,
    /// How it is used; `None` while nobody uses it.
    pub mode: Option<String>,
    /// The permits of a semaphore.
    pub limit: Option<u32>,
    /// Whether nobody new is let in.
    #[serde(default)]
    pub draining: bool,
    /// Who holds it.
    pub holders: Vec<Contender>,
    /// Who waits for it, in order.
    pub queue: Vec<Contender>,
    /// What else was said.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Somebody who holds a lock or waits for it.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Contender {
    /// What its place in the lock is called.
    pub holder: String,
    /// Whose it is.
    pub session: String,
    /// The scope of re-entrancy.
    pub owner: String,
    /// What it says of itself.
    pub note: String,
    /// How it holds the lock, or wants to.
    pub mode: String,
    /// How many permits.
    pub permits: u32,
    /// How often it has entered.
    pub holds: u32,
    /// The proof of its grant.
    pub fencing_token: u64,
    /// Since when it holds or waits (RFC 3339).
    pub since_at: String,
    /// Where it called from.
    pub address: String,
    /// Its place in the queue, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u32>,
    /// What else was said.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// One session.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct SessionView {
    /// Its id.
    pub session: String,
    /// Its name.
    pub name: String,
    /// How long it lives without a heartbeat.
    pub ttl_ms: u64,
    /// How old it is.
    pub age_ms: u64,
    /// Where it was opened from.
    pub address: String,
    /// The locks that it holds.
    pub held: Vec<Place>,
    /// The locks that it waits for.
    pub awaited: Vec<Place>,
    /// What else was said.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A session's place in a lock.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Place {
    /// Which lock.
    pub lock: String,
    /// What the place is called.
    pub holder: String,
}

/// A page of a list, whatever its items are called there.
#[derive(Deserialize)]
struct Page<T> {
    #[serde(
        alias = "locks",
        alias = "sessions",
        alias = "tokens",
        alias = "roles",
        alias = "certificates"
    )]
    items: Vec<T>,
    next_after: Option<String>,
}

impl LockClient {
    /// The locks whose names begin with `prefix`, by name. They come in pages, so where much happens this is no picture of
    /// one moment.
    pub async fn locks(&self, prefix: &str) -> Result<Vec<LockSummary>, Error> {
        self.all(&format!("/v1/locks?prefix={}&", encode::segment(prefix)))
            .await
    }

    /// One lock; `None` if it does not exist, which means that it is free.
    pub async fn lock(&self, name: &str) -> Result<Option<LockView>, Error> {
        let path = format!("/v1/locks/{}?linearizable=true", encode::lock(name));
        match self.servers.ask(&Call::get(path)).await {
            Ok(view) => Ok(Some(view)),
            Err(error) if error.is(Code::NoLock) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All sessions.
    pub async fn sessions(&self) -> Result<Vec<SessionView>, Error> {
        self.all("/v1/sessions?").await
    }

    /// Ends a session of anybody, and with it all its locks. Its program learns of it as of an expiry ([`Loss::Expired`](crate::Loss::Expired)).
    /// That it has ended already is a success.
    pub async fn end_session(&self, session: &str) -> Result<(), Error> {
        let call = Call {
            method: Method::DELETE,
            path: format!(
                "/v1/sessions/{}?request_id={}",
                encode::segment(session),
                request_id()
            ),
            body: Default::default(),
        };
        match self.servers.call(&call).await {
            Err(Error::Refused(refusal)) if refusal.ends_session() => Ok(()),
            other => other.map(drop),
        }
    }

    /// Takes a lock, or a place in its queue, away from `holder`, whatever that still does under it.
    pub async fn break_lock(&self, name: &str, holder: &str, reason: &str) -> Result<(), Error> {
        let body = json!({ "holder": holder, "reason": reason, "request_id": request_id() });
        let path = format!("/v1/locks/{}/break", encode::segment(name));
        let call = Call::with(Method::POST, path, &body);
        self.servers.call(&call).await.map(drop)
    }

    /// Asks the holders of a lock, or one of them, to give it up. What comes of it is up to them. Returns how many were
    /// asked.
    pub async fn revoke(&self, name: &str, holder: Option<&str>, reason: &str) -> Result<u32, Error> {
        #[derive(Deserialize)]
        struct Answer {
            asked: u32,
        }
        let mut body = json!({ "reason": reason, "request_id": request_id() });
        if let Some(holder) = holder {
            body["holder"] = holder.into();
        }
        let path = format!("/v1/locks/{}/revoke", encode::segment(name));
        let answer: Answer = self.servers.ask(&Call::with(Method::POST, path, &body)).await?;
        Ok(answer.asked)
    }

    /// Lets nobody new in, nor into the queue, for as long as it is so. Who holds the lock stays.
    pub async fn drain(&self, name: &str, draining: bool) -> Result<(), Error> {
        self.configure(name, json!({ "draining": draining, "request_id": request_id() }))
            .await
    }

    /// Sets the limit of a semaphore, also while it is used: nobody loses permits by that. `None`: it is again what its
    /// first user says.
    pub async fn set_limit(&self, name: &str, limit: Option<u32>) -> Result<(), Error> {
        self.configure(name, json!({ "limit": limit, "request_id": request_id() }))
            .await
    }

    async fn configure(&self, name: &str, body: Value) -> Result<(), Error> {
        let path = format!("/v1/locks/{}", encode::lock(name));
        let call = Call::with(Method::PUT, path, &body);
        self.servers.call(&call).await.map(drop)
    }

    /// All items of a list; `path` ends with `?` or `&`.
    pub(crate) async fn all<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>, Error> {
        let (mut items, mut after) = (Vec::new(), String::new());
        loop {
            let call = Call::get(format!("{path}linearizable=true&count={PAGE}{after}"));
            let mut page: Page<T> = self.servers.ask(&call).await?;
            items.append(&mut page.items);
            match page.next_after {
                Some(last) => after = format!("&after={}", encode::segment(&last)),
                None => return Ok(items),
            }
        }
    }
}
