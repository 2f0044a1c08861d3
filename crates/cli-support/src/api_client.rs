//! Calls of the lock API that survive the loss of a node: the next node is asked with the same `request_id`.
//!
//! This is what the demo, the failover measurement and the process tests use. It has no guards and no opinion on
//! what a lost session means; it is not the client library.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use transport_security::ClientTls;

use crate::credentials::Credentials;
use crate::http_client::{Connection, Response, encode_path};

/// Between two tries when no node could answer. An election takes some hundred milliseconds, so a shorter pause
/// only makes work, and a longer one adds to every failover.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// How long a request without a wait of its own may be without an answer before another node is asked.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// A caller of the lock API that knows all nodes and is connected to one at a time.
#[derive(Debug)]
pub struct ApiClient {
    nodes: Vec<String>,
    current: usize,
    connection: Option<Connection>,
    credentials: Credentials,
    /// For how long a call is tried on all nodes before it fails.
    patience: Duration,
    retries: u64,
}

/// A lock that was granted over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLock {
    /// Its name.
    pub lock: String,
    /// The contender that holds it.
    pub holder: String,
    /// Its fencing token.
    pub fencing_token: u64,
}

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The cluster answered, and said no.
    #[error("{status} {code}: {detail}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The stable word for the reason.
        code: String,
        /// The reason in words.
        detail: String,
    },
    /// No node gave an answer for as long as the client has patience.
    #[error("no answer from any node: {0}")]
    NoAnswer(String),
}

impl CallError {
    /// The stable word for the reason of a refusal; empty if there was no answer.
    pub fn code(&self) -> &str {
        match self {
            Self::Refused { code, .. } => code,
            Self::NoAnswer(_) => "",
        }
    }
}

impl ApiClient {
    /// A client of `nodes` (each `host:port`) that begins with the one numbered `first`.
    pub fn new(nodes: &[String], first: usize, patience: Duration) -> Self {
        assert!(!nodes.is_empty(), "a client needs a node to talk to");
        Self {
            nodes: nodes.to_vec(),
            current: first % nodes.len(),
            connection: None,
            credentials: Credentials::default(),
            patience,
            retries: 0,
        }
    }

    /// Calls the nodes over TLS, if something is given that protects it.
    pub fn secured(mut self, tls: Option<ClientTls>) -> Self {
        self.credentials.tls = tls;
        self
    }

    /// Calls the nodes with whatever is there to protect that, and to say who calls.
    pub fn with(mut self, credentials: Credentials) -> Self {
        self.credentials = credentials;
        self
    }

    /// How often a call had to be repeated.
    pub fn retries(&self) -> u64 {
        self.retries
    }

    /// The node that is asked first.
    pub fn node(&self) -> &str {
        &self.nodes[self.current]
    }

    /// Sends a request until a node answers with something else than 503. The body must carry a `request_id` if
    /// doing it twice would be wrong.
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
        let deadline = Instant::now() + self.patience;
        loop {
            let attempt = tokio::time::timeout(answer_within, self.attempt(method, path, &body)).await;
            let problem = match attempt {
                Ok(Ok(response)) if response.status == 503 => {
                    format!("{}: {}", self.node(), String::from_utf8_lossy(&response.body))
                }
                Ok(Ok(response)) if response.status >= 400 => {
                    let detail = response.json()["detail"].as_str().unwrap_or_default().to_owned();
                    return Err(CallError::Refused {
                        status: response.status,
                        code: response.code(),
                        detail,
                    });
                }
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(error)) => format!("{}: {error}", self.node()),
                Err(_) => format!("{}: no answer in {} ms", self.node(), answer_within.as_millis()),
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
        // A node that is silent must not cost the session its whole time: another one may answer.
        let answer_within = self.patience / 3;
        let path = format!("/v1/sessions/{session}/heartbeat");
        self.call("POST", &path, &Value::Null, answer_within)
            .await
            .map(drop)
    }

    /// Closes a session.
    pub async fn close_session(&mut self, session: &str) -> Result<(), CallError> {
        let path = format!("/v1/sessions/{session}");
        match self.call("DELETE", &path, &Value::Null, ANSWER_TIMEOUT).await {
            // The answer to an earlier try was lost: it did its work.
            Err(CallError::Refused {
                status: 404 | 410, ..
            }) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Acquires the exclusive lock, and waits for it as long as it takes.
    pub async fn acquire(&mut self, session: &str, lock: &str) -> Result<HeldLock, CallError> {
        self.acquire_with(session, lock, json!({ "wait_ms": null })).await
    }

    /// Acquires a lock with the wishes in `wishes` (mode, wait_ms, …).
    pub async fn acquire_with(
        &mut self,
        session: &str,
        lock: &str,
        mut wishes: Value,
    ) -> Result<HeldLock, CallError> {
        wishes["session"] = session.into();
        if wishes["request_id"].is_null() {
            wishes["request_id"] = request_id().into();
        }
        let answer_within = match wishes.get("wait_ms") {
            // Waits until granted: the connection is its own sign of life.
            Some(Value::Null) => Duration::from_secs(24 * 3600),
            Some(wait) => ANSWER_TIMEOUT + Duration::from_millis(wait.as_u64().unwrap_or_default()),
            None => ANSWER_TIMEOUT,
        };
        let path = format!("/v1/locks/{}/acquire", encode_path(lock));
        let response = self.call("POST", &path, &wishes, answer_within).await?;
        let fencing_token = response.json()["fencing_token"]
            .as_u64()
            .ok_or_else(|| CallError::NoAnswer("a grant without fencing_token".to_owned()))?;
        Ok(HeldLock {
            lock: lock.to_owned(),
            holder: text_of(&response, "holder")?,
            fencing_token,
        })
    }

    /// Gives a lock back.
    pub async fn release(&mut self, session: &str, held: &HeldLock) -> Result<(), CallError> {
        let body = json!({ "session": session, "holder": held.holder, "request_id": request_id() });
        let path = format!("/v1/locks/{}/release", encode_path(&held.lock));
        self.call("POST", &path, &body, ANSWER_TIMEOUT).await.map(drop)
    }

    /// Whether the cluster says that the lock is held under this token.
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
        .ok_or_else(|| CallError::NoAnswer(format!("an answer without {field}: {json}")))
}

/// A fresh request id.
pub fn request_id() -> String {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).expect("the operating system has random numbers");
    format!("{:032x}", u128::from_le_bytes(bits))
}

/// A session over HTTP with a task that renews it every third of its time. Dropping it ends the heartbeats, not
/// the session: the cluster ends it when its time is over.
#[derive(Debug)]
pub struct KeptSession {
    id: String,
    heartbeats: JoinHandle<CallError>,
}

impl KeptSession {
    /// Opens a session through `client`; the heartbeats get a client of their own for the same nodes.
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

    /// The session's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whether a heartbeat has failed for good: the session has ended, or nobody answered for its whole time.
    pub fn is_lost(&self) -> bool {
        self.heartbeats.is_finished()
    }
}

impl Drop for KeptSession {
    fn drop(&mut self) {
        self.heartbeats.abort();
    }
}
