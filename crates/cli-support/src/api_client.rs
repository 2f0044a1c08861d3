//! HTTP lock API client that survives the loss of a node: it repeats a call at the next node with the same
//! `request_id`.
//!
//! The demo, the failover measurement and the process tests use it. It has no lock guards and no policy for a
//! lost session; the client library is `lock-client`.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use transport_security::ClientTls;

use crate::credentials::Credentials;
use crate::http_client::{Connection, Response, encode_path};

/// Pause before the next attempt when no node could answer. An election takes some hundred milliseconds, so a
/// shorter pause only causes work, and a longer one delays every failover.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Time without a response after which a request that does not wait for a lock is repeated at another node.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// Client of the lock API that knows all nodes and is connected to one at a time.
#[derive(Debug)]
pub struct ApiClient {
    nodes: Vec<String>,
    current: usize,
    connection: Option<Connection>,
    credentials: Credentials,
    /// Total time for which a call is tried on all nodes before it fails.
    call_timeout: Duration,
    retries: u64,
}

/// Lock that was granted over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLock {
    /// Name of the lock.
    pub lock: String,
    /// Contender that holds it.
    pub holder: String,
    /// Fencing token of the grant.
    pub fencing_token: u64,
}

/// Reason why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The cluster rejected the call.
    #[error("{status} {code}: {detail}")]
    Rejected {
        /// HTTP status.
        status: u16,
        /// Stable error code.
        code: String,
        /// Error text.
        detail: String,
    },
    /// No node responded within the call timeout.
    #[error("no response from any node: {0}")]
    NoAnswer(String),
}

impl CallError {
    /// Returns the stable error code of a rejection; empty if there was no response.
    pub fn code(&self) -> &str {
        match self {
            Self::Rejected { code, .. } => code,
            Self::NoAnswer(_) => "",
        }
    }
}

impl ApiClient {
    /// Creates a client of `nodes` (each `host:port`) that calls the node with index `first` first.
    ///
    /// # Panics
    ///
    /// If there are no nodes.
    pub fn new(nodes: &[String], first: usize, call_timeout: Duration) -> Self {
        assert!(!nodes.is_empty(), "an API client needs at least one node");
        Self {
            nodes: nodes.to_vec(),
            current: first % nodes.len(),
            connection: None,
            credentials: Credentials::default(),
            call_timeout,
            retries: 0,
        }
    }

    /// Sets the TLS configuration. With `None` the client uses plain HTTP.
    pub fn secured(mut self, tls: Option<ClientTls>) -> Self {
        self.credentials.tls = tls;
        self
    }

    /// Sets the credentials for TLS and authentication.
    pub fn with(mut self, credentials: Credentials) -> Self {
        self.credentials = credentials;
        self
    }

    /// Returns the credentials.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Returns the number of repeated calls.
    pub fn retries(&self) -> u64 {
        self.retries
    }

    /// Returns the node that the next call is sent to.
    pub fn node(&self) -> &str {
        &self.nodes[self.current]
    }

    /// Sends a request until a node decides on it. The body must contain a
    /// `request_id` if executing the request twice would be wrong.
    pub async fn call(
        &mut self,
        method: &str,
        path: &str,
        body: &Value,
        answer_within: Duration,
    ) -> Result<Response, CallError> {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let deadline = Instant::now() + self.call_timeout;
        loop {
            let attempt = tokio::time::timeout(answer_within, self.attempt(method, path, &body)).await;
            let problem = match attempt {
                Ok(Ok(response)) if response.is_retryable() => {
                    format!("{}: {}", self.node(), String::from_utf8_lossy(&response.body))
                }
                Ok(Ok(response)) if response.status >= 400 => {
                    let detail = response.json()["detail"].as_str().unwrap_or_default().to_owned();
                    return Err(CallError::Rejected {
                        status: response.status,
                        code: response.code(),
                        detail,
                    });
                }
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(error)) => format!("{}: {error}", self.node()),
                Err(_) => format!("{}: no response in {} ms", self.node(), answer_within.as_millis()),
            };
            if Instant::now() >= deadline {
                return Err(CallError::NoAnswer(problem));
            }
            self.retries += 1;
            self.connection = None;
            self.current = (self.current + 1) % self.nodes.len();
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    async fn attempt(&mut self, method: &str, path: &str, body: &str) -> io::Result<Response> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::connect_as(&self.nodes[self.current], &self.credentials).await?,
        };
        let response = connection.send(method, path, body).await?;
        self.connection = Some(connection);
        Ok(response)
    }

    /// Opens a session.
    pub async fn open_session(&mut self, ttl: Duration, name: &str) -> Result<String, CallError> {
        let body = json!({ "ttl_ms": ttl.as_millis() as u64, "name": name, "request_id": request_id() });
        let response = self.call("POST", "/v1/sessions", &body, ANSWER_TIMEOUT).await?;
        text_of(&response, "session")
    }

    /// Renews a session.
    pub async fn heartbeat(&mut self, session: &str) -> Result<(), CallError> {
        // A silent node must not use up the session's TTL: another node may respond.
        let answer_within = self.call_timeout / 3;
        let path = format!("/v1/sessions/{session}/heartbeat");
        self.call("POST", &path, &Value::Null, answer_within)
            .await
            .map(drop)
    }

    /// Closes a session.
    pub async fn close_session(&mut self, session: &str) -> Result<(), CallError> {
        let path = format!("/v1/sessions/{session}");
        match self.call("DELETE", &path, &Value::Null, ANSWER_TIMEOUT).await {
            // The session is gone already: an earlier attempt closed it, and its response was lost.
            Err(CallError::Rejected {
                status: 404 | 410, ..
            }) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Acquires the lock exclusively, and waits for it without a limit.
    pub async fn acquire(&mut self, session: &str, lock: &str) -> Result<HeldLock, CallError> {
        self.acquire_with(session, lock, json!({ "wait_ms": null })).await
    }

    /// Acquires a lock with the given request fields (mode, wait_ms, …).
    pub async fn acquire_with(
        &mut self,
        session: &str,
        lock: &str,
        mut request: Value,
    ) -> Result<HeldLock, CallError> {
        request["session"] = session.into();
        if request["request_id"].is_null() {
            request["request_id"] = request_id().into();
        }
        let answer_within = match request.get("wait_ms") {
            // Waits until granted. The server holds the request open and notices a lost connection.
            Some(Value::Null) => Duration::from_secs(24 * 3600),
            Some(wait) => ANSWER_TIMEOUT + Duration::from_millis(wait.as_u64().unwrap_or_default()),
            None => ANSWER_TIMEOUT,
        };
        let path = format!("/v1/locks/{}/acquire", encode_path(lock));
        let response = self.call("POST", &path, &request, answer_within).await?;
        let fencing_token = response.json()["fencing_token"]
            .as_u64()
            .ok_or_else(|| CallError::NoAnswer("a grant without a fencing_token".to_owned()))?;
        Ok(HeldLock {
            lock: lock.to_owned(),
            holder: text_of(&response, "holder")?,
            fencing_token,
        })
    }

    /// Releases a lock.
    pub async fn release(&mut self, session: &str, held: &HeldLock) -> Result<(), CallError> {
        let body = json!({ "session": session, "holder": held.holder, "request_id": request_id() });
        let path = format!("/v1/locks/{}/release", encode_path(&held.lock));
        self.call("POST", &path, &body, ANSWER_TIMEOUT).await.map(drop)
    }

    /// Returns whether the lock is held with this token.
    pub async fn check(&mut self, held: &HeldLock) -> Result<bool, CallError> {
        let path = format!(
            "/v1/locks/{}/check?fencing_token={}",
            encode_path(&held.lock),
            held.fencing_token
        );
        let response = self.call("GET", &path, &Value::Null, ANSWER_TIMEOUT).await?;
        Ok(response.json()["held"] == true)
    }
}

fn text_of(response: &Response, field: &str) -> Result<String, CallError> {
    let json = response.json();
    let text = json[field].as_str();
    text.map(str::to_owned)
        .ok_or_else(|| CallError::NoAnswer(format!("a response without {field}: {json}")))
}

/// Returns a random request id.
pub fn request_id() -> String {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).expect("the operating system has random numbers");
    format!("{:032x}", u128::from_le_bytes(bits))
}

/// Session over HTTP with a task that sends a heartbeat every third of the TTL. Dropping it stops the
/// heartbeats but does not close the session: it expires after its TTL.
#[derive(Debug)]
pub struct RenewedSession {
    id: String,
    heartbeats: JoinHandle<CallError>,
}

impl RenewedSession {
    /// Opens a session through `client`. The heartbeats use a client of their own for the same nodes.
    pub async fn open(client: &mut ApiClient, ttl: Duration, name: &str) -> Result<Self, CallError> {
        let id = client.open_session(ttl, name).await?;
        let mut heart = ApiClient::new(&client.nodes, client.current, ttl).with(client.credentials.clone());
        let session = id.clone();
        let heartbeats = tokio::spawn(async move {
            let mut beat = tokio::time::interval(ttl / 3);
            loop {
                beat.tick().await;
                if let Err(error) = heart.heartbeat(&session).await {
                    return error;
                }
            }
        });
        Ok(Self { id, heartbeats })
    }

    /// Returns the session's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns whether the heartbeats have failed for good: the session has ended, or no node responded for
    /// the whole TTL.
    pub fn is_lost(&self) -> bool {
        self.heartbeats.is_finished()
    }
}

impl Drop for RenewedSession {
    fn drop(&mut self) {
        self.heartbeats.abort();
    }
}
