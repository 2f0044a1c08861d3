//! Caller of a cluster's HTTP API, one call at a time: chooses the node, applies a timeout, and interprets
//! the answer. Each client returns to its own node after a short time elsewhere, so that partitioned nodes go
//! on receiving calls.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::Method;
use serde_json::Value;

use super::connection::{Connection, RequestError};
use super::result::CallResult;

/// Timeout of an ordinary call: longer than a healthy cluster ever needs, shorter than most faults.
pub const TIMEOUT: Duration = Duration::from_secs(2);

/// Time for which a client whose own node has failed uses other nodes.
const FALLBACK_PERIOD: Duration = Duration::from_secs(2);

/// Answer of a server, or its absence, classified.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The call has been executed; with the response document.
    Done(Value),
    /// The cluster has rejected the call; with the error code and the whole document.
    Refused(String, Value),
    /// The call has not been executed and will not be; with the reason.
    NotDone(String),
    /// The outcome is unknown; with the reason.
    Unknown(String),
}

impl Reply {
    /// Converts a reply to a call whose rejections are of no interest to the client.
    pub fn done(self) -> CallResult<Value> {
        match self {
            Self::Done(body) => CallResult::Ok(body),
            Self::Refused(code, _) => CallResult::Failed(code),
            Self::NotDone(why) => CallResult::Failed(why),
            Self::Unknown(why) => CallResult::Unknown(why),
        }
    }
}

/// Connection of one client to the cluster, with its choice of nodes.
pub struct Caller {
    addresses: Vec<SocketAddr>,
    home: usize,
    at: usize,
    return_home_at: Instant,
    connection: Option<Connection>,
}

impl Caller {
    /// Creates the caller of the client with this number.
    pub fn new(addresses: Vec<SocketAddr>, number: usize) -> Self {
        let home = number % addresses.len();
        Self {
            addresses,
            home,
            at: home,
            return_home_at: Instant::now(),
            connection: None,
        }
    }

    /// Creates a caller that uses one node only, even after failures.
    pub fn to_one(address: SocketAddr) -> Self {
        Self::new(vec![address], 0)
    }

    /// Switches to another node for a while, because this one has failed or because a retry is to use another
    /// one.
    pub fn switch_node(&mut self) {
        self.connection = None;
        self.at = (self.at + 1) % self.addresses.len();
        self.return_home_at = Instant::now() + FALLBACK_PERIOD;
    }

    /// Closes the connection with any call that is in flight on it.
    pub fn disconnect(&mut self) {
        self.connection = None;
    }

    /// Returns the index of the node that receives the next call.
    pub fn at(&mut self) -> usize {
        if self.at != self.home && Instant::now() >= self.return_home_at {
            self.connection = None;
            self.at = self.home;
        }
        self.at
    }

    /// Returns whether the next call uses the connection of the last one. If not, the node may have been
    /// restarted in between.
    pub async fn is_connected(&mut self) -> bool {
        self.at();
        match &mut self.connection {
            Some(connection) => connection.is_usable().await,
            None => false,
        }
    }

    /// Sends a `GET` with the usual timeout.
    pub async fn get(&mut self, path: &str) -> Reply {
        self.call(Method::GET, path, None, TIMEOUT).await
    }

    /// Sends a `POST` with the usual timeout.
    pub async fn post(&mut self, path: &str, body: &Value) -> Reply {
        self.call(Method::POST, path, Some(body), TIMEOUT).await
    }

    /// Sends a call. If the future is dropped before its end, the connection is closed. After a call without
    /// a definite answer the next one uses another node.
    pub async fn call(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        timeout: Duration,
    ) -> Reply {
        self.call_with_key(method, path, body, None, timeout).await
    }

    /// Sends a call with an `Idempotency-Key`, if there is one.
    pub async fn call_with_key(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        key: Option<&str>,
        timeout: Duration,
    ) -> Reply {
        let body = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        let at = self.at();
        let address = self.addresses[at];
        let mut connection = match self.connected(address).await {
            Ok(connection) => connection,
            Err(RequestError::NotSent(why) | RequestError::Broken(why)) => {
                self.switch_node();
                return Reply::NotDone(why);
            }
        };
        let response = tokio::time::timeout(timeout, connection.send(method, path, body, key)).await;
        let reply = match response {
            Ok(Ok(response)) => read(response.status, &response.body),
            Ok(Err(RequestError::NotSent(why))) => Reply::NotDone(why),
            Ok(Err(RequestError::Broken(why))) => Reply::Unknown(why),
            Err(_) => Reply::Unknown("no answer in time".to_owned()),
        };
        match &reply {
            Reply::Done(_) | Reply::Refused(..) => self.connection = Some(connection),
            Reply::NotDone(_) | Reply::Unknown(_) => self.switch_node(),
        }
        reply
    }

    /// Returns the current connection if it is usable, or a new one. The connection is taken out of `self`: a
    /// call that is dropped then leaves no connection behind on which its answer would be read as that of the
    /// next call.
    async fn connected(&mut self, address: SocketAddr) -> Result<Connection, RequestError> {
        if let Some(mut connection) = self.connection.take()
            && connection.is_usable().await
        {
            return Ok(connection);
        }
        Connection::open(address).await
    }
}

/// Interprets a response by the contract in docs/reference/http-api.md.
fn read(status: u16, body: &[u8]) -> Reply {
    let document: Value = match serde_json::from_slice(body) {
        Ok(document) => document,
        Err(_) if body.is_empty() => Value::Null,
        Err(error) => {
            return Reply::Unknown(format!("status {status} with a body that is not JSON: {error}"));
        }
    };
    let code = document["code"].as_str().unwrap_or("no code").to_owned();
    match (status, code.as_str()) {
        (200..=299, _) => Reply::Done(document),
        (400..=499, _) => Reply::Refused(code, document),
        (_, "unavailable" | "read_only") => Reply::NotDone(code),
        // Includes responses that Lockgate did not produce: without an explicit "not done" the call may have
        // been executed.
        _ => Reply::Unknown(format!("{status} {code}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_counts_as_not_done_only_if_the_response_says_so() {
        let of = |status, code: &str| read(status, format!(r#"{{"code":"{code}"}}"#).as_bytes());
        assert_eq!(read(204, b""), Reply::Done(Value::Null));
        assert!(matches!(of(409, "bad_version"), Reply::Refused(code, _) if code == "bad_version"));
        assert!(matches!(of(503, "unavailable"), Reply::NotDone(_)));
        assert!(matches!(of(507, "read_only"), Reply::NotDone(_)));
        assert!(matches!(of(504, "outcome_unknown"), Reply::Unknown(_)));
        assert!(matches!(of(500, "internal"), Reply::Unknown(_)));
        assert!(matches!(read(502, b"<html>"), Reply::Unknown(_)));
    }

    #[tokio::test]
    async fn refused_connection_means_not_done() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
        let address = listener.local_addr().expect("it is bound");
        drop(listener);
        let reply = Caller::to_one(address).get("/healthz").await;
        assert!(matches!(reply, Reply::NotDone(_)), "{reply:?}");
    }

    #[tokio::test]
    async fn connection_that_breaks_after_the_request_leaves_the_outcome_unknown() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut some = [0; 16];
            tokio::io::AsyncReadExt::read_exact(&mut stream, &mut some)
                .await
                .expect("the request");
        });
        let reply = Caller::to_one(address).get("/healthz").await;
        assert!(matches!(reply, Reply::Unknown(_)), "{reply:?}");
        server.await.expect("the server task does not panic");
    }
}
