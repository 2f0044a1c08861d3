//! Acquire of a lease: a place in the queue that needs no open connection, and polls for the grant.
//!
//! The acquire of a session waits on one open connection, because heartbeats show at any time whether that server lives. A lease has no
//! heartbeats. So its acquire waits by short requests, each of which any server can answer, and renews the lease after each.

use std::time::Duration;

use hyper::Method;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time::Instant;
use tracing::{Instrument as _, debug_span};

use crate::client::LockClient;
use crate::clock::BootInstant;
use crate::encode::{self, millis};
use crate::error::{Code, Error, Loss};
use crate::fencing_token::FencingToken;
use crate::http::ApiRequest;
use crate::lease::{Lease, LeaseHandle, LeaseView, still_waits};
use crate::options::{AcquireOptions, Mode, Wait};
use crate::servers::{BatchRequest, SHORTEST_TRY, read, request_id};

/// Maximum wait of one poll, which is below the idle timeouts of proxies.
const LONGEST_POLL: Duration = Duration::from_secs(30);

/// Answer to an acquire: a grant, or a place in the queue.
#[derive(Deserialize)]
struct Opened {
    lease: String,
    holder: String,
    mode: Option<Mode>,
    fencing_token: Option<FencingToken>,
    expires_in_ms: u64,
}

/// Wait of one copy of an acquire.
#[derive(Clone, Copy)]
enum Place {
    /// The cluster answers at once with the grant, or with a place in the queue.
    InQueue,
    /// The cluster grants the lock at once, or refuses. This ends the wait of earlier copies.
    None,
}

/// Request of all copies of one acquire.
#[derive(Clone)]
struct Request {
    client: LockClient,
    lock: String,
    parameters: Map<String, Value>,
    /// Number of copies so far.
    sent: u16,
}

/// Acquire of one lease. If it is dropped before the caller has the lease, the lease is released in the background.
struct AcquireLease {
    request: Request,
    /// Lease that the caller does not have yet.
    opened: Option<LeaseHandle>,
    /// `true` if the cluster may have opened a lease whose key is not known.
    in_doubt: bool,
}

/// Lease at an answer to a request that was sent at this moment.
pub(crate) type Answered = (LeaseHandle, BootInstant, LeaseView);

impl LockClient {
    /// Acquires a lock for `ttl`, without a session. The cluster limits `ttl`, by default to 2 s to 24 h. It refuses the options
    /// [`owner`](AcquireOptions::owner) and [`reentrant`](AcquireOptions::reentrant).
    ///
    /// A waiting call renews the lease. Its place in the queue does not depend on a connection, so no proxy's idle timeout costs it.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the call leaves the queue, and a grant of the same moment is released.
    pub async fn acquire_lease(
        &self,
        lock: &str,
        ttl: Duration,
        options: AcquireOptions,
    ) -> Result<Lease, Error> {
        let call = AcquireLease::new(self, lock, ttl, options.parameters);
        let span = debug_span!("lockgate.acquire", lock);
        let counts = &self.servers.counts;
        counts.acquire(1, call.run(options.wait)).instrument(span).await
    }

    /// Acquires a lock as [`LockClient::acquire_lease`] does, or takes a place in its queue, and returns at once. [`LeaseHandle::wait`]
    /// returns the lease when it has the lock, in any process that knows its [key](LeaseHandle::key).
    ///
    /// # Cancel safety
    ///
    /// If dropped, the lease is released.
    pub async fn queue_lease(
        &self,
        lock: &str,
        ttl: Duration,
        options: AcquireOptions,
    ) -> Result<LeaseHandle, Error> {
        let mut call = AcquireLease::new(self, lock, ttl, options.parameters);
        let (handle, ..) = call.send(Place::InQueue).await?;
        call.opened = None;
        Ok(handle)
    }
}

fn path(lock: &str) -> String {
    format!("/v1/locks/{}/acquire", encode::segment(lock))
}

/// Returns the fields of an acquire by a lease.
fn parameters(ttl: Duration, mut parameters: Map<String, Value>) -> Map<String, Value> {
    if parameters.get("reentrant") == Some(&false.into()) {
        parameters.remove("reentrant");
    }
    parameters.insert("ttl_ms".to_owned(), millis(ttl).into());
    parameters.insert("request_id".to_owned(), request_id().into());
    parameters
}

/// Returns the request that acquires a lock by a lease at once, or not at all.
pub(crate) fn lease_request(lock: &str, ttl: Duration, options: &AcquireOptions) -> BatchRequest {
    let mut body = parameters(ttl, options.parameters.clone());
    body.insert("retry".to_owned(), 0.into());
    BatchRequest::new(Method::POST, path(lock), body)
}

impl Request {
    /// Returns the next copy, with its number.
    fn next(&mut self, place: Place) -> ApiRequest {
        let mut body = self.parameters.clone();
        match place {
            Place::InQueue => body.insert("wait".to_owned(), "queue".into()),
            Place::None => body.insert("wait_ms".to_owned(), 0.into()),
        };
        body.insert("retry".to_owned(), self.sent.into());
        self.sent = self.sent.saturating_add(1);
        ApiRequest::with(Method::POST, path(&self.lock), &Value::Object(body))
    }

    /// Sends copies until a server gives a definite answer.
    async fn send(&mut self, place: Place) -> Result<Answered, Error> {
        let (servers, sent) = (self.client.servers.clone(), BootInstant::now());
        let (total, answer) = (servers.patience.total, servers.patience.answer);
        let body = servers.call_copies(|| self.next(place), total, answer).await?;
        opened(&self.client, &self.lock, sent, &body)
    }
}

/// Returns the lease in the answer to an acquire that was sent at this moment.
pub(crate) fn opened(
    client: &LockClient,
    lock: &str,
    sent: BootInstant,
    body: &[u8],
) -> Result<Answered, Error> {
    let opened: Opened = read(body)?;
    let view = LeaseView {
        lock: lock.to_owned(),
        holder: opened.holder,
        mode: opened.mode,
        fencing_token: opened.fencing_token,
        note: String::new(),
        ttl_ms: opened.expires_in_ms,
        expires_in_ms: Some(opened.expires_in_ms),
        more: Map::new(),
    };
    Ok((client.lease(&opened.lease), sent, view))
}

impl LeaseHandle {
    /// Waits until the lease has its lock, and renews it meanwhile. It is for a lease that may be in the queue: see
    /// [`LockClient::queue_lease`]. If the time is over, the error is [`Code::LockTimeout`], and the lease keeps its place until it ends.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the lease keeps its place until it ends.
    pub async fn wait(&self, wait: Wait) -> Result<Lease, Error> {
        let until = match wait {
            Wait::Try => Some(Instant::now()),
            Wait::AtMost(time) => Some(Instant::now() + time),
            Wait::Forever => None,
        };
        let sent = BootInstant::now();
        let view = self.renewed(None, self.client.servers.patience.total).await?;
        let (sent, view) = self.wait_from(sent, view, until).await?;
        self.held(sent, view)
            .ok_or_else(|| still_waits(Code::LockTimeout))
    }

    /// Waits from an answer on that was asked for at `sent`. Returns the last answer: without a fencing token if the time is over.
    async fn wait_from(
        &self,
        mut sent: BootInstant,
        mut view: LeaseView,
        until: Option<Instant>,
    ) -> Result<(BootInstant, LeaseView), Error> {
        let ttl = Duration::from_millis(view.ttl_ms);
        while view.fencing_token.is_none() {
            let left = until.map_or(LONGEST_POLL, |until| {
                until.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                break;
            }
            self.poll(&view, left.min(LONGEST_POLL), ttl).await?;
            let left = self.client.margin.valid_until(sent, ttl) - BootInstant::now();
            sent = BootInstant::now();
            view = match self.renewed(None, left).await {
                Err(Error::Unavailable(_) | Error::Unknown(_)) => Err(Error::Lost(Loss::LeaseExpired)),
                other => other,
            }?;
        }
        Ok((sent, view))
    }

    /// Waits for the grant at one server, at most for `time` and a third of the TTL. The answer does not matter: the renewal reports a grant,
    /// and a place that is gone.
    async fn poll(&self, view: &LeaseView, time: Duration, ttl: Duration) -> Result<(), Error> {
        let servers = &self.client.servers;
        let time = time.min(ttl / 3);
        let (lock, holder) = (encode::segment(&view.lock), encode::segment(&view.holder));
        let path = format!("/v1/locks/{lock}/holders/{holder}?wait_ms={}", millis(time));
        // A server that does not answer leaves half of the TTL for the renewal.
        let answer = time + (ttl / 6).max(SHORTEST_TRY).min(servers.patience.answer);
        match servers
            .call_within(&ApiRequest::get(path), Duration::ZERO, answer)
            .await
        {
            Ok(_) | Err(Error::Unavailable(_) | Error::Unknown(_)) => Ok(()),
            Err(error) if error.is(Code::HolderGone) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl AcquireLease {
    fn new(client: &LockClient, lock: &str, ttl: Duration, of_options: Map<String, Value>) -> Self {
        Self {
            request: Request {
                client: client.clone(),
                lock: lock.to_owned(),
                parameters: parameters(ttl, of_options),
                sent: 0,
            },
            opened: None,
            in_doubt: false,
        }
    }

    async fn run(mut self, wait: Wait) -> Result<Lease, Error> {
        let begun = Instant::now();
        let acquired = match wait {
            Wait::Try => self.send(Place::None).await,
            Wait::AtMost(time) => self.wait(Some(begun + time)).await,
            Wait::Forever => self.wait(None).await,
        };
        let (handle, sent, view) = acquired?;
        let is_old = BootInstant::now() - sent > Duration::from_millis(view.ttl_ms) / 4;
        let lease = match handle.held(sent, view) {
            // After several attempts.
            _ if is_old => handle.renew(None).await?,
            Some(lease) => lease,
            None => return Err(Error::Unknown("a grant without a fencing token".to_owned())),
        };
        self.opened = None;
        Ok(lease)
    }

    /// Sends the acquire. Its answer says whether there is a lease.
    async fn send(&mut self, place: Place) -> Result<Answered, Error> {
        // The cluster may receive it from now on, even if this future is dropped.
        self.in_doubt = true;
        let answered = self.request.send(place).await;
        match &answered {
            Ok((handle, ..)) => self.opened = Some(handle.clone()),
            Err(Error::Refused(_)) => self.opened = None,
            Err(Error::Unavailable(_)) => {}
            Err(Error::Unknown(_) | Error::Lost(_) | Error::Stopped) => return answered,
        }
        self.in_doubt = false;
        answered
    }

    /// Waits in the queue until the lock is granted, or the time is over.
    async fn wait(&mut self, until: Option<Instant>) -> Result<Answered, Error> {
        let (handle, sent, view) = self.send(Place::InQueue).await?;
        match handle.wait_from(sent, view, until).await {
            Ok((
                _,
                LeaseView {
                    fencing_token: None, ..
                },
            )) => self.send(Place::None).await,
            Ok((sent, view)) => Ok((handle, sent, view)),
            Err(error) => Err(self.gone(error)),
        }
    }

    /// Records that there is no lease, if this error says so. Returns the error for the caller.
    fn gone(&mut self, error: Error) -> Error {
        if matches!(error, Error::Lost(_)) {
            self.opened = None;
        }
        error
    }
}

impl Drop for AcquireLease {
    fn drop(&mut self) {
        let (opened, in_doubt) = (self.opened.take(), self.in_doubt);
        if opened.is_none() && !in_doubt {
            return;
        }
        let mut request = self.request.clone();
        let background = self.request.client.servers.background.clone();
        let spawned = background.spawn(async move {
            let released = match opened {
                Some(handle) => handle.release().await,
                None => match request.send(Place::None).await {
                    Ok((handle, ..)) => handle.release().await,
                    Err(Error::Refused(_)) => Ok(()),
                    Err(error) => Err(error),
                },
            };
            if let Err(error) = released {
                let lock = request.lock;
                tracing::warn!(lock, %error, "the lease of a cancelled acquire was not released");
            }
        });
        if let Err(error) = spawned {
            tracing::warn!(lock = self.request.lock, %error, "no thread for releasing the lease of a cancelled acquire");
        }
    }
}
