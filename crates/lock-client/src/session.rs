//! Sessions: opened, kept alive in the background, closed. How they are kept alive stands in `heartbeat.rs`, how they hear of what
//! happens to their locks in `follow.rs`, what is
//! known of their lives in `life.rs`.

use std::io;
use std::sync::Arc;
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
use crate::life::{Life, Standing};
use crate::options::{AcquireOptions, LockSet};
use crate::servers::request_id;
use crate::session_core::{Core, Inner, Renewed, heartbeat};
use crate::znodes::Znodes;

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
        let core = Arc::new(Core::new(servers, session, ttl, life));
        let session = LockSession {
            inner: Arc::new(start_tasks(core)?),
        };
        // If the client was shut down meanwhile, the session that is dropped here is closed.
        self.client.sessions.add(&session.inner.core)?;
        Ok(session)
    }
}

/// Starts the tasks of a session. They are not spawned in `open`, because each crate that awaits that `async fn` compiles it again, with
/// all that it spawns.
fn start_tasks(core: Arc<Core>) -> Result<Inner, Error> {
    let start = || -> io::Result<_> {
        let background = &core.servers.background;
        let timer = background.timer()?;
        let heartbeats = background.spawn(keep_alive(core.clone(), timer))?;
        Ok([heartbeats, background.spawn(follow(core.clone()))?])
    };
    let unavailable = |error| Error::Unavailable(format!("this system gives no timer or thread: {error}"));
    let tasks = start().map_err(unavailable)?;
    Ok(Inner::new(core, tasks.map(AbortOnDropHandle::new)))
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
