//! Leases: locks with a time to live and without a session. `acquire_lease.rs` acquires them. Nothing renews a lease but its caller.

use std::fmt;
use std::time::Duration;

use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::client::LockClient;
use crate::clock::BootInstant;
use crate::encode::{self, millis};
use crate::error::{Code, Error, Loss, Refusal};
use crate::fencing_token::FencingToken;
use crate::http::ApiRequest;
use crate::options::Mode;
use crate::servers::{BatchRequest, SHORTEST_TRY, read, request_id};

/// Access to a lease by its key, in any process: [`LockClient::lease`]. `Debug` does not show the key.
#[derive(Clone)]
pub struct LeaseHandle {
    pub(crate) client: LockClient,
    key: String,
}

/// Lease that this process acquired or renewed.
///
/// Nothing renews it but [`Lease::renew`], and dropping it does not release it: a lease may outlive the process. [`Lease::check`] reads the
/// clock, and reports the end before the cluster grants the lock to another caller.
#[derive(Debug)]
#[must_use = "a lease that is dropped holds its lock until its time is over"]
pub struct Lease {
    handle: LeaseHandle,
    lock: String,
    holder: String,
    mode: Mode,
    fencing_token: FencingToken,
    /// End of the time in which the lease surely lives.
    valid_until: BootInstant,
    is_over: bool,
}

/// Lease, as the cluster shows it.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct LeaseView {
    /// Name of the lock.
    pub lock: String,
    /// Id of the contender.
    pub holder: String,
    /// Mode; `None` while the lease waits for its lock.
    pub mode: Option<Mode>,
    /// Fencing token; `None` while the lease waits for its lock.
    pub fencing_token: Option<FencingToken>,
    /// Text of the caller.
    pub note: String,
    /// Time to live after a renewal.
    pub ttl_ms: u64,
    /// Time until the lease ends; `None` if the server that answered does not lead.
    pub expires_in_ms: Option<u64>,
    /// Other fields of the answer.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl fmt::Debug for LeaseHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl LockClient {
    /// Returns access to the lease with this [key](Lease::key), which another process may have acquired. Sends nothing.
    pub fn lease(&self, key: &str) -> LeaseHandle {
        LeaseHandle {
            client: self.clone(),
            key: key.trim().to_owned(),
        }
    }
}

impl LeaseHandle {
    pub(crate) fn path(&self) -> String {
        format!("/v1/leases/{}", encode::segment(&self.key))
    }

    /// Renews the lease for `ttl`, or for the same time as before. From then on this process can [check](Lease::check) it.
    ///
    /// If the lease is over, the error is [`Loss::LeaseExpired`]. A lease that waits for its lock is renewed too, but the error is
    /// [`Code::NotHolder`].
    ///
    /// # Cancel safety
    ///
    /// If dropped, the lease is renewed or not.
    pub async fn renew(&self, ttl: Option<Duration>) -> Result<Lease, Error> {
        let sent = BootInstant::now();
        let view = self.renewed(ttl, self.client.servers.patience.total).await?;
        self.held(sent, view).ok_or_else(|| still_waits(Code::NotHolder))
    }

    /// Returns the request that renews the lease.
    pub(crate) fn renewal(&self, ttl: Option<Duration>) -> BatchRequest {
        let mut body = Map::new();
        if let Some(ttl) = ttl {
            body.insert("ttl_ms".to_owned(), millis(ttl).into());
            // A copy that arrives late would take a later change back.
            body.insert("request_id".to_owned(), request_id().into());
        }
        BatchRequest::new(Method::POST, format!("{}/renew", self.path()), body)
    }

    /// Renews the lease within this time.
    pub(crate) async fn renewed(&self, ttl: Option<Duration>, within: Duration) -> Result<LeaseView, Error> {
        let BatchRequest {
            method, path, body, ..
        } = self.renewal(ttl);
        let renew = ApiRequest::with(method, path, &Value::Object(body));
        let servers = &self.client.servers;
        // Each server gets its share, so that one that does not answer leaves time for the others.
        let share = within / u32::try_from(servers.count()).unwrap_or(u32::MAX);
        let answer = servers.patience.answer.min(share.max(SHORTEST_TRY));
        let answered = servers.call_within(&renew, within, answer).await;
        read(&answered.map_err(ended)?)
    }

    /// Returns the lease after a renewal that was sent at `sent`; `None` if it waits for its lock.
    pub(crate) fn held(&self, sent: BootInstant, view: LeaseView) -> Option<Lease> {
        let ttl = Duration::from_millis(view.ttl_ms);
        Some(Lease {
            handle: self.clone(),
            lock: view.lock,
            holder: view.holder,
            mode: view.mode?,
            fencing_token: view.fencing_token?,
            valid_until: self.client.margin.valid_until(sent, ttl),
            is_over: false,
        })
    }

    /// Releases the lock. May be repeated. If the lease was over before, the error is [`Loss::LeaseExpired`].
    ///
    /// # Cancel safety
    ///
    /// If dropped, the lock is released, or is when its time is over.
    pub async fn release(&self) -> Result<(), Error> {
        let call = ApiRequest::delete(self.path());
        self.client.servers.call(&call).await.map(drop).map_err(ended)
    }

    /// Returns the lease, as the cluster shows it.
    pub async fn get(&self) -> Result<LeaseView, Error> {
        let path = format!("{}?linearizable=true", self.path());
        let found = self.client.servers.ask(&ApiRequest::get(path)).await;
        found.map_err(ended)
    }

    /// Returns the key; see [`Lease::key`].
    pub fn key(&self) -> &str {
        &self.key
    }
}

impl Lease {
    /// Returns the key, by which any process can renew and release the lease: [`LockClient::lease`]. It is a secret. Never log it.
    pub fn key(&self) -> &str {
        &self.handle.key
    }

    /// Returns the name of the lock.
    pub fn lock(&self) -> &str {
        &self.lock
    }

    /// Returns the id of the contender that holds the lock.
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// Returns the mode of the hold.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the fencing token.
    pub fn fencing_token(&self) -> FencingToken {
        self.fencing_token
    }

    /// Returns the time in which the lease surely lives, from this moment. It counts from the sending of the last confirmed renewal, on a
    /// clock that counts suspend, less the [`Margin`](crate::Margin). It is zero if the lease is over.
    #[must_use]
    pub fn expires_in(&self) -> Duration {
        match self.is_over {
            true => Duration::ZERO,
            false => self.valid_until - BootInstant::now(),
        }
    }

    /// Returns the fencing token if the time of the lease is not over. Call it before every step that needs the lock.
    ///
    /// It does not ask the cluster: a lease that was broken, released elsewhere, or held for its maximum time is reported by the next
    /// [`Lease::renew`]. A storage with several writers should check the token.
    pub fn check(&self) -> Result<FencingToken, Error> {
        match self.expires_in() {
            Duration::ZERO => Err(Error::Lost(Loss::LeaseExpired)),
            _ => Ok(self.fencing_token),
        }
    }

    /// Renews the lease for `ttl`, or for the same time as before. If it is over, the error is [`Loss::LeaseExpired`]. It may succeed after
    /// [`Lease::check`] has failed: then the lock was held all the time.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the lease is renewed or not, and [`Lease::check`] assumes the shorter time.
    pub async fn renew(&mut self, ttl: Option<Duration>) -> Result<(), Error> {
        let (sent, before) = (BootInstant::now(), self.valid_until);
        if let Some(ttl) = ttl {
            // The cluster may shorten the time from now on, even if this future is dropped.
            let margin = self.handle.client.margin;
            self.valid_until = before.min(margin.valid_until(sent, ttl));
        }
        match self.handle.renew(ttl).await {
            Ok(renewed) => *self = renewed,
            Err(error) => {
                match &error {
                    Error::Lost(_) => self.is_over = true,
                    Error::Refused(_) | Error::Unavailable(_) => self.valid_until = before,
                    Error::Unknown(_) | Error::Stopped => {}
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Releases the lock. An error means that it was not held to the end ([`Loss::LeaseExpired`]), or that it may not be released.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the lock is released, or is when its time is over.
    pub async fn release(self) -> Result<(), Error> {
        self.handle.release().await
    }
}

/// Returns the error for the caller: a lease that has ended is a loss.
pub(crate) fn ended(error: Error) -> Error {
    match error.is(Code::LeaseExpired) {
        true => Error::Lost(Loss::LeaseExpired),
        false => error,
    }
}

pub(crate) fn still_waits(code: Code) -> Error {
    let refusal = Refusal {
        code,
        status: 409,
        detail: "the lease still waits for its lock".to_owned(),
        facts: Map::new(),
    };
    refusal.into()
}
