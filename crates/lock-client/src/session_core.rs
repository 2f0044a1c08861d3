//! Core of a session: the state that its tasks, calls and guards share, and the requests about the session itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use hyper::Method;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio_util::task::AbortOnDropHandle;

use crate::error::{Code, Error, Loss};
use crate::http::ApiRequest;
use crate::life::{Life, RequestedRelease};
use crate::servers::{Servers, request_id};

/// Maximum time for closing a session that is lost. It has ended, or will soon; the request lets others have its locks earlier, if a
/// server can be reached at all.
const CLOSE_LOST_WITHIN: Duration = Duration::from_secs(1);

/// Shared state of one session.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) servers: Arc<Servers>,
    pub(crate) id: String,
    pub(crate) ttl: Duration,
    pub(crate) life: Life,
    /// `true` after a close has ended, with or without success. A close that was dropped halfway is repeated
    /// when the session is dropped.
    close_has_ended: AtomicBool,
    /// Number of calls that wait at each server. Heartbeats are sent to these servers too, which shows whether they live.
    pub(crate) waits: Vec<AtomicUsize>,
}

/// Session that is closed in the background when this is dropped. Shared by the clones of a session and its guards.
#[derive(Debug)]
pub(crate) struct OpenSession {
    pub(crate) core: Arc<Core>,
    /// The tasks that renew the session and follow its events; they end with it.
    _tasks: [AbortOnDropHandle<()>; 2],
}

/// Answer to a heartbeat.
#[derive(Deserialize)]
pub(crate) struct Renewed {
    pub(crate) ttl_ms: u64,
    /// `true` if the server that answered is the leader, and the request asked for it.
    #[serde(default)]
    pub(crate) leads: bool,
    #[serde(default)]
    pub(crate) release_requested: Vec<RequestedRelease>,
}

/// Returns the request that renews a session, and may ask whether the server that answers leads.
pub(crate) fn heartbeat(session: &str, asks_for_leader: bool) -> ApiRequest {
    let query = if asks_for_leader { "?leader=true" } else { "" };
    ApiRequest::with(
        Method::POST,
        format!("/v1/sessions/{session}/heartbeat{query}"),
        &Value::Object(Map::new()),
    )
    .in_background()
}

impl Core {
    /// State of a session that was just opened.
    pub(crate) fn new(servers: Arc<Servers>, id: String, ttl: Duration, life: Life) -> Self {
        Self {
            waits: (0..servers.count()).map(|_| AtomicUsize::new(0)).collect(),
            servers,
            id,
            ttl,
            life,
            close_has_ended: AtomicBool::new(false),
        }
    }

    /// Ends the session.
    pub(crate) async fn close(&self) -> Result<(), Error> {
        let (total, answer) = match self.life.loss() {
            Some(Loss::Expired) => return Ok(()),
            Some(Loss::NoHeartbeat) => (CLOSE_LOST_WITHIN, CLOSE_LOST_WITHIN),
            // It may be called again after a failure.
            None | Some(_) => (self.ttl, self.servers.patience.answer),
        };
        self.life.lose(Loss::Closed);
        let path = format!("/v1/sessions/{}?request_id={}", self.id, request_id());
        let close = ApiRequest::delete(path);
        let closed = self.servers.call_within(&close, total, answer).await;
        self.close_has_ended.store(true, Ordering::Relaxed);
        match closed {
            Err(Error::Refused(refusal)) if refusal.ends_session() => Ok(()),
            other => other.map(drop),
        }
    }

    /// Returns the result of a request about these holders of the session. If it failed because their lock is lost, the error is the loss,
    /// with the reason that their guards report.
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

    /// Runs the last request of a dropped session, guard or call. Without a thread for it the session ends when its TTL is over.
    pub(crate) fn in_background(&self, what: &str, task: impl Future<Output = ()> + Send + 'static) {
        if let Err(error) = self.servers.background.spawn(task) {
            tracing::warn!(session = self.id, %error, "no thread for {what}");
        }
    }

    /// Ends the session if this error says that the cluster has ended it. Returns the error for the caller.
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

impl OpenSession {
    /// Session with the tasks that renew and follow it.
    pub(crate) fn new(core: Arc<Core>, tasks: [AbortOnDropHandle<()>; 2]) -> Self {
        Self { core, _tasks: tasks }
    }
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        match self.core.life.loss() {
            None => self.core.life.lose(Loss::Closed),
            Some(Loss::Closed) if !self.core.close_has_ended.load(Ordering::Relaxed) => {}
            Some(_) => return,
        }
        let core = self.core.clone();
        self.core.in_background("closing a dropped session", async move {
            if let Err(error) = core.close().await {
                tracing::warn!(session = core.id, %error, "a dropped session was not closed");
            }
        });
    }
}
