//! Sessions: opening, acquiring, closing. `heartbeat.rs` renews them, `follow.rs` reads their events, `life.rs` keeps their state.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use tracing::{Instrument as _, debug_span};

use crate::acquire::Acquire;
use crate::client::LockClient;
use crate::clock::BootInstant;
use crate::encode::millis;
use crate::error::{Code, Error, Loss, Refusal};
use crate::follow::follow;
use crate::guard::{LockGuard, LockGuards};
use crate::heartbeat::keep_alive;
use crate::http::ApiRequest;
use crate::life::{Life, SessionState};
use crate::options::{AcquireOptions, LockSet};
use crate::servers::request_id;
use crate::session_core::{Core, OpenSession, Renewed, heartbeat};
use crate::znodes::Znodes;

/// Builder of a session; see [`LockClient::session`].
#[derive(Debug, Clone)]
#[must_use = "a builder opens nothing before `open`"]
pub struct SessionBuilder {
    client: LockClient,
    ttl: Option<Duration>,
    name: String,
}

/// Session of this program, on which all its locks and ephemeral znodes depend.
///
/// The client renews it in the background for as long as this, a clone, or a guard of it lives, and closes it in the background after that;
/// [`LockSession::close`] waits until it is closed. Heartbeats run on the client's own thread, also after the runtime that opened the
/// session has ended; see [`ClientBuilder::runtime`](crate::ClientBuilder::runtime).
#[derive(Debug, Clone)]
#[must_use = "a session that is dropped is closed"]
pub struct LockSession {
    pub(crate) inner: Arc<OpenSession>,
    client: LockClient,
}

#[derive(Deserialize)]
struct Opened {
    session: String,
    ttl_ms: u64,
}

impl SessionBuilder {
    pub(crate) fn new(client: LockClient) -> Self {
        Self {
            client,
            ttl: None,
            name: String::new(),
        }
    }

    /// Sets the TTL, which is the time that the session lives without a heartbeat (10 s). The cluster limits it, by default to 2 s to 5
    /// min. A shorter TTL frees the locks of a dead holder earlier; a longer one survives longer network outages.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets the name in the list of sessions.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Opens the session.
    ///
    /// # Cancel safety
    ///
    /// If dropped, a session may have been opened. It expires, and holds nothing.
    pub async fn open(self) -> Result<LockSession, Error> {
        let servers = self.client.servers.for_session()?;
        let mut body = Map::new();
        body.insert("name".into(), self.name.into());
        body.insert("request_id".into(), request_id().into());
        if let Some(ttl) = self.ttl {
            body.insert("ttl_ms".into(), millis(ttl).into());
        }
        let open = ApiRequest::with(Method::POST, "/v1/sessions".to_owned(), &Value::Object(body));
        let mut sent = BootInstant::now();
        let Opened { session, ttl_ms } = servers.ask(&open).await?;
        let mut ttl = Duration::from_millis(ttl_ms);
        if BootInstant::now() - sent > ttl / 4 {
            // After several attempts the session may be old already.
            sent = BootInstant::now();
            let renewed: Renewed = servers.ask(&heartbeat(&session, false)).await?;
            ttl = Duration::from_millis(renewed.ttl_ms);
        }
        servers.counts.add(|stats| stats.sessions_opened += 1);
        let life = Life::new(&session, sent, ttl, self.client.margin, servers.counts.clone());
        let core = Arc::new(Core::new(servers, session, ttl, life));
        let session = LockSession {
            inner: Arc::new(start_tasks(core)?),
            client: self.client,
        };
        // If the client was shut down meanwhile, dropping the session closes it.
        session.client.sessions.add(&session.inner.core)?;
        Ok(session)
    }
}

/// Starts the tasks of a session. `open` does not spawn them itself, because each crate that awaits that `async fn` compiles it again
/// with everything that it spawns.
fn start_tasks(core: Arc<Core>) -> Result<OpenSession, Error> {
    let start = || -> io::Result<_> {
        let background = &core.servers.background;
        let timer = background.timer()?;
        let heartbeats = background.spawn(keep_alive(core.clone(), timer))?;
        Ok([heartbeats, background.spawn(follow(core.clone()))?])
    };
    let unavailable = |error| Error::Unavailable(format!("this system gives no timer or thread: {error}"));
    let tasks = start().map_err(unavailable)?;
    Ok(OpenSession::new(core, tasks.map(AbortOnDropHandle::new)))
}

impl LockSession {
    /// Returns the id, as the cluster shows it.
    pub fn id(&self) -> &str {
        &self.inner.core.id
    }

    /// Returns the client that opened the session.
    pub fn client(&self) -> &LockClient {
        &self.client
    }

    /// Returns the TTL.
    pub fn ttl(&self) -> Duration {
        self.inner.core.ttl
    }

    /// Acquires a lock.
    ///
    /// The call survives the loss of servers: the client sends it to the next server under the same request id, and it keeps its place in
    /// the queue. It ends with [`Error::Lost`] when the session is lost.
    ///
    /// A call for a lock that a guard of this session holds for the same named [owner](AcquireOptions::owner) would wait for itself, unless
    /// its wait is bounded or it re-enters. It fails with [`Code::WouldDeadlock`]. Calls without an owner wait.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the call leaves the queue, and a grant of the same moment is released.
    pub async fn acquire(&self, lock: &str, options: AcquireOptions) -> Result<LockGuard, Error> {
        let core = &self.inner.core;
        if core.life.would_wait_for_itself(lock, &options) {
            return Err(would_wait_for_itself(lock));
        }
        let owner = options.owner_name();
        let acquire = Acquire::one(core.clone(), lock, options).run();
        let span = debug_span!("lockgate.acquire", lock);
        let mut grants = core.servers.counts.acquire(1, acquire).instrument(span).await?;
        let mut grant = grants.remove(0);
        grant.owner = owner;
        Ok(LockGuard::new(self.inner.clone(), grant))
    }

    /// Acquires several locks of any modes, all or none. Otherwise as [`LockSession::acquire`].
    pub async fn acquire_all(&self, set: LockSet) -> Result<LockGuards, Error> {
        let core = &self.inner.core;
        let locks = set.locks.len();
        let acquire = Acquire::many(core.clone(), set).run();
        let span = debug_span!("lockgate.acquire", locks);
        let grants = core
            .servers
            .counts
            .acquire(locks, acquire)
            .instrument(span)
            .await?;
        Ok(LockGuards::new(self.inner.clone(), grants))
    }

    /// Returns access to the tree of znodes, for changes in the name of this session. Its ephemeral znodes end with it.
    pub fn znodes(&self) -> Znodes {
        Znodes::new(self.inner.core.servers.clone(), Some(self.inner.core.clone()))
    }

    /// Returns the state at this moment.
    #[must_use]
    pub fn state(&self) -> SessionState {
        self.inner.core.life.refresh()
    }

    /// Returns a receiver of changes of [`LockSession::state`].
    pub fn state_changes(&self) -> watch::Receiver<SessionState> {
        self.inner.core.life.state()
    }

    /// Returns whether the session is lost, or may be: other sessions may hold its locks. This is final.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.inner.core.life.loss().is_some()
    }

    /// Waits until the session is lost. Cancel safe.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + use<> {
        let core = self.inner.core.clone();
        async move { core.life.lost().await }
    }

    /// Ends the session with all its locks, contenders and ephemeral znodes, in one step. The client tries for one TTL, or for a second if
    /// the session is lost already.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the session is closed in the background.
    pub async fn close(self) -> Result<(), Error> {
        self.inner.core.close().await
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
