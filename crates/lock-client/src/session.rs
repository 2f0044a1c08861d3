//! Sessions: opened, kept alive in the background, closed. How they are kept alive stands in `heartbeat.rs`, how they hear of what
//! happens to their locks in `follow.rs`, what is
//! known of their lives in `life.rs`.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use hyper::Method;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::acquire::Acquire;
use crate::client::LockClient;
use crate::clock::{BootInstant, BootTimer};
use crate::error::{Error, Loss};
use crate::follow::follow;
use crate::guard::{LockGuard, LockGuards};
use crate::heartbeat::keep_alive;
use crate::http::Call;
use crate::life::{Asked, Life, Standing};
use crate::options::{AcquireOptions, LockSet};
use crate::servers::{Servers, request_id};
use crate::znodes::Znodes;

/// How long it is tried to close a session that is lost. It has ended, or will soon; to say so lets others have its locks
/// earlier, if anybody can be reached at all.
const CLOSE_LOST_WITHIN: Duration = Duration::from_secs(1);

/// Says what session is wanted; see [`LockClient::session`].
#[derive(Debug, Clone)]
pub struct SessionBuilder {
    client: LockClient,
    ttl: Option<Duration>,
    name: String,
}

/// A session of this program: the life sign that all its locks and ephemeral znodes depend on.
///
/// It is renewed in the background for as long as this, a clone of it, or a guard of it lives. Then it is closed, in the
/// background too; [`LockSession::close`] does so and says when it is done. The renewals run on the runtime that it was
/// opened on: a runtime whose threads are all blocked renews nothing.
#[derive(Debug, Clone)]
pub struct LockSession {
    pub(crate) inner: Arc<Inner>,
}

/// What all that belongs to a session share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) servers: Arc<Servers>,
    pub(crate) id: String,
    pub(crate) ttl: Duration,
    pub(crate) life: Life,
    /// How many calls wait at each server: there the session is renewed too, which shows whether the server lives.
    pub(crate) waits: Vec<AtomicUsize>,
}

/// A session that ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) core: Arc<Core>,
    _heartbeats: AbortOnDropHandle<()>,
    _events: AbortOnDropHandle<()>,
}

#[derive(Deserialize)]
struct Opened {
    session: String,
    ttl_ms: u64,
}

/// The answer to a heartbeat.
#[derive(Deserialize)]
pub(crate) struct Renewed {
    pub(crate) ttl_ms: u64,
    /// Whether the server that has answered leads the cluster, if it was asked.
    #[serde(default)]
    pub(crate) leads: bool,
    #[serde(default)]
    pub(crate) revoke_requested: Vec<Asked>,
}

impl SessionBuilder {
    pub(crate) fn new(client: LockClient) -> Self {
        Self {
            client,
            ttl: None,
            name: String::new(),
        }
    }

    /// How long the session lives without a heartbeat (10 s). The cluster moves it into its bounds, by default 2 s to 5
    /// min. Shorter: a lock whose holder died is free earlier. Longer: a holder survives longer outages of the network.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// A name for people who look at the list of sessions.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Opens it.
    pub async fn open(self) -> Result<LockSession, Error> {
        let servers = self.client.servers.for_session()?;
        let timer = BootTimer::new()
            .map_err(|error| Error::Unavailable(format!("this system gives no timer: {error}")))?;
        let mut body = Map::new();
        body.insert("name".into(), self.name.into());
        body.insert("request_id".into(), request_id().into());
        if let Some(ttl) = self.ttl {
            body.insert("ttl_ms".into(), millis(ttl).into());
        }
        let open = Call::with(Method::POST, "/v1/sessions".to_owned(), &Value::Object(body));
        let mut sent = BootInstant::now();
        let Opened { session, ttl_ms } = servers.ask(&open).await?;
        let mut ttl = Duration::from_millis(ttl_ms);
        if BootInstant::now() - sent > ttl / 4 {
            // It took several tries, so the session may be old already.
            sent = BootInstant::now();
            let renewed: Renewed = servers.ask(&heartbeat(&session, false)).await?;
            ttl = Duration::from_millis(renewed.ttl_ms);
        }
        let core = Arc::new(Core {
            waits: (0..servers.count()).map(|_| AtomicUsize::new(0)).collect(),
            servers,
            id: session,
            ttl,
            life: Life::new(sent, ttl, self.client.margin),
        });
        Ok(LockSession {
            inner: Arc::new(Inner::new(core, timer)),
        })
    }
}

impl Inner {
    /// Starts the tasks of a session. They are not spawned in `open`, because each crate that awaits that `async fn` compiles it again, with
    /// all that it spawns.
    fn new(core: Arc<Core>, timer: BootTimer) -> Self {
        Self {
            _heartbeats: AbortOnDropHandle::new(tokio::spawn(keep_alive(core.clone(), timer))),
            _events: AbortOnDropHandle::new(tokio::spawn(follow(core.clone()))),
            core,
        }
    }
}

/// The request that renews a session, and may ask whether the server that answers leads.
pub(crate) fn heartbeat(session: &str, asks_for_leader: bool) -> Call {
    let query = if asks_for_leader { "?leader=true" } else { "" };
    Call::with(
        Method::POST,
        format!("/v1/sessions/{session}/heartbeat{query}"),
        &Value::Object(Map::new()),
    )
}

impl LockSession {
    /// Its id, as the cluster shows it.
    pub fn id(&self) -> &str {
        &self.inner.core.id
    }

    /// How long it lives without a heartbeat.
    pub fn ttl(&self) -> Duration {
        self.inner.core.ttl
    }

    /// Acquires a lock. A call that is dropped before it ends leaves the queue, and gives back what it was granted in
    /// the same moment.
    ///
    /// The call survives the loss of servers: it is sent to the next one under the same request id, and keeps its place
    /// in the queue. It ends with [`Error::Lost`] when the session does.
    pub async fn acquire(&self, lock: &str, options: AcquireOptions) -> Result<LockGuard, Error> {
        let mut grants = Acquire::one(self.inner.core.clone(), lock, options).run().await?;
        let grant = grants.remove(0);
        Ok(LockGuard::new(self.inner.clone(), grant))
    }

    /// Acquires several locks, of whatever modes, or none. As [`LockSession::acquire`] otherwise.
    pub async fn acquire_all(&self, set: LockSet) -> Result<LockGuards, Error> {
        let grants = Acquire::many(self.inner.core.clone(), set).run().await?;
        Ok(LockGuards::new(self.inner.clone(), grants))
    }

    /// The tree of znodes, for changes on behalf of this session: ephemeral znodes end with it.
    pub fn znodes(&self) -> Znodes {
        Znodes::new(self.inner.core.servers.clone(), Some(self.inner.core.clone()))
    }

    /// How sure it is at this moment that the session lives.
    pub fn standing(&self) -> Standing {
        self.inner.core.life.look()
    }

    /// Tells of every change of [`LockSession::standing`].
    pub fn standing_changes(&self) -> watch::Receiver<Standing> {
        self.inner.core.life.standing()
    }

    /// Whether it is lost, or may be: others may hold its locks by now. It does not come back.
    pub fn is_lost(&self) -> bool {
        self.inner.core.life.loss().is_some()
    }

    /// Waits until the session is lost.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + use<> {
        let core = self.inner.core.clone();
        async move { core.life.lost().await }
    }

    /// Ends the session, and with it all its locks, places in queues and ephemeral znodes, in one step. It is tried for as long
    /// as the session may live; for a second, if it is lost already.
    pub async fn close(self) -> Result<(), Error> {
        self.inner.core.close().await
    }
}

impl Core {
    /// Ends it.
    async fn close(&self) -> Result<(), Error> {
        let (total, answer) = match self.life.loss() {
            Some(Loss::Expired) => return Ok(()),
            Some(Loss::NoHeartbeat) => (CLOSE_LOST_WITHIN, CLOSE_LOST_WITHIN),
            // It may be called again after a failure.
            None | Some(_) => (self.ttl, self.servers.patience.answer),
        };
        self.life.lose(Loss::Closed);
        let path = format!("/v1/sessions/{}?request_id={}", self.id, request_id());
        let close = Call {
            method: Method::DELETE,
            path,
            body: Default::default(),
        };
        match self.servers.call_within(&close, total, answer).await {
            Err(Error::Refused(refusal)) if refusal.ends_session() => Ok(()),
            other => other.map(drop),
        }
    }

    /// What a refusal means to this session.
    pub(crate) fn refused(&self, error: Error) -> Error {
        match error {
            Error::Refused(refusal) if refusal.ends_session() => {
                self.life.lose(Loss::Expired);
                Error::Lost(Loss::Expired)
            }
            other => other,
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.core.life.loss().is_some() {
            return;
        }
        self.core.life.lose(Loss::Closed);
        // Without a runtime its time runs out, for want of heartbeats.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let core = self.core.clone();
            runtime.spawn(async move {
                if let Err(error) = core.close().await {
                    tracing::warn!(session = core.id, %error, "a dropped session was not closed");
                }
            });
        }
    }
}

/// Milliseconds as the API takes them.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
