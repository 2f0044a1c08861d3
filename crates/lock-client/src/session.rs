//! Sessions: opened, kept alive in the background, closed. How they are kept alive stands in `heartbeat.rs`, how they hear of what
//! happens to their locks in `follow.rs`, what is
//! known of their lives in `life.rs`.

use std::io;
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
use crate::clock::BootInstant;
use crate::encode::millis;
use crate::error::{Code, Error, Loss, Refusal};
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
/// background too; [`LockSession::close`] does so and says when it is done. The renewals run on the client's own thread, whatever
/// becomes of the runtime that the session was opened on; see [`ClientBuilder::runtime`](crate::ClientBuilder::runtime).
#[derive(Debug, Clone)]
#[must_use = "a session that is dropped is closed"]
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
        let life = Life::new(&session, sent, ttl, self.client.margin);
        let core = Arc::new(Core {
            waits: (0..servers.count()).map(|_| AtomicUsize::new(0)).collect(),
            servers,
            id: session,
            ttl,
            life,
        });
        let session = LockSession {
            inner: Arc::new(Inner::new(core)?),
        };
        // If the client was shut down meanwhile, the session that is dropped here is closed.
        self.client.sessions.add(&session.inner.core)?;
        Ok(session)
    }
}

impl Inner {
    /// Starts the tasks of a session. They are not spawned in `open`, because each crate that awaits that `async fn` compiles it again, with
    /// all that it spawns.
    fn new(core: Arc<Core>) -> Result<Self, Error> {
        let start = || -> io::Result<_> {
            let background = &core.servers.background;
            let timer = background.timer()?;
            let heartbeats = background.spawn(keep_alive(core.clone(), timer))?;
            Ok((heartbeats, background.spawn(follow(core.clone()))?))
        };
        let unavailable =
            |error| Error::Unavailable(format!("this system gives no timer or thread: {error}"));
        let (heartbeats, events) = start().map_err(unavailable)?;
        Ok(Self {
            _heartbeats: AbortOnDropHandle::new(heartbeats),
            _events: AbortOnDropHandle::new(events),
            core,
        })
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
    ///
    /// A call for a lock that a guard of this session holds for the same named [owner](AcquireOptions::owner) would wait for itself, unless
    /// its wait is bounded or it enters again: it is refused with [`Code::WouldDeadlock`]. Calls without an owner are anybody's, so they wait.
    pub async fn acquire(&self, lock: &str, options: AcquireOptions) -> Result<LockGuard, Error> {
        let core = &self.inner.core;
        if core.life.would_wait_for_itself(lock, &options) {
            return Err(would_wait_for_itself(lock));
        }
        let owner = options.owner_name();
        let mut grants = Acquire::one(core.clone(), lock, options).run().await?;
        let mut grant = grants.remove(0);
        grant.owner = owner;
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
    pub(crate) async fn close(&self) -> Result<(), Error> {
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

    /// The result of a request about these holders of the session. If it failed because their lock is lost, the error is the loss, for the
    /// reason that their guards give.
    pub(crate) async fn explained<'h, T>(
        &self,
        result: Result<T, Error>,
        holders: impl IntoIterator<Item = &'h str>,
    ) -> Result<T, Error> {
        let error = match result {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        if let Some(loss) = self.life.loss() {
            return Err(Error::Lost(loss));
        }
        if !error.is(Code::NotHolder) && error != Error::Lost(Loss::TakenAway) {
            return Err(error);
        }
        Err(Error::Lost(self.life.why_gone(holders).await))
    }

    /// Runs the last request of something that was dropped, wherever that was. A session that cannot say its last words ends with its
    /// time.
    pub(crate) fn in_background(&self, what: &str, task: impl Future<Output = ()> + Send + 'static) {
        if let Err(error) = self.servers.background.spawn(task) {
            tracing::warn!(session = self.id, %error, "no thread for {what}");
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
        let core = self.core.clone();
        self.core.in_background("closing a dropped session", async move {
            if let Err(error) = core.close().await {
                tracing::warn!(session = core.id, %error, "a dropped session was not closed");
            }
        });
    }
}

fn would_wait_for_itself(lock: &str) -> Error {
    let refusal = Refusal {
        code: Code::WouldDeadlock,
        status: 409,
        detail: format!(
            "{lock:?} is held by the same owner of this session: acquire it as reentrant, bound the wait, or name another owner"
        ),
        facts: Map::from_iter([("lock".to_owned(), lock.into())]),
    };
    refusal.into()
}
