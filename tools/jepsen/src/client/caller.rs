//! Calls to a cluster's HTTP API, one at a time: which node is asked, for how long, and what its answer means. A client
//! keeps to its own node so that nodes that are cut off go on being asked, and turns to others only for a while.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::Method;
use serde_json::Value;

use super::answer::Answer;
use super::connection::{Connection, Silence};

/// How long an ordinary call is waited for: longer than a healthy cluster ever takes, shorter than most faults.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// So long a client that was failed by its own node asks others.
const AWAY: Duration = Duration::from_secs(2);

/// What a server says.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// It has done so.
    Done(Value),
    /// The cluster has decided not to: a stable word, and the whole document.
    Refused(String, Value),
    /// It has not been done, and won't be.
    NotDone(String),
    /// Nobody knows.
    Unknown(String),
}

impl Reply {
    /// What of a call whose refusal is no answer of interest.
    pub fn done(self) -> Answer<Value> {
        match self {
            Self::Done(body) => Answer::Ok(body),
            Self::Refused(code, _) => Answer::Failed(code),
            Self::NotDone(why) => Answer::Failed(why),
            Self::Unknown(why) => Answer::Unknown(why),
        }
    }
}

/// One client's way to the cluster.
pub struct Caller {
    addresses: Vec<SocketAddr>,
    home: usize,
    at: usize,
    home_again: Instant,
    connection: Option<Connection>,
}

impl Caller {
    /// The client with this number.
    pub fn new(addresses: Vec<SocketAddr>, number: usize) -> Self {
        let home = number % addresses.len();
        Self {
            addresses,
            home,
            at: home,
            home_again: Instant::now(),
            connection: None,
        }
    }

    /// Who speaks to one node only, whatever it says.
    pub fn to_one(address: SocketAddr) -> Self {
        Self::new(vec![address], 0)
    }

    /// Turns to another node, for a while: this one has failed, or a repetition is to go elsewhere.
    pub fn move_on(&mut self) {
        self.connection = None;
        self.at = (self.at + 1) % self.addresses.len();
        self.home_again = Instant::now() + AWAY;
    }

    /// Closes the connection, whatever is under way on it.
    pub fn hang_up(&mut self) {
        self.connection = None;
    }

    /// Which node is asked next.
    pub fn at(&mut self) -> usize {
        if self.at != self.home && Instant::now() >= self.home_again {
            self.connection = None;
            self.at = self.home;
        }
        self.at
    }

    /// Whether the next call goes out on the connection of the last one. If not, the node may be in another life.
    pub async fn is_connected(&mut self) -> bool {
        self.at();
        match &mut self.connection {
            Some(connection) => connection.is_usable().await,
            None => false,
        }
    }

    /// `GET`, with the usual patience.
    pub async fn get(&mut self, path: &str) -> Reply {
        self.call(Method::GET, path, None, PATIENCE).await
    }

    /// `POST`, with the usual patience.
    pub async fn post(&mut self, path: &str, body: &Value) -> Reply {
        self.call(Method::POST, path, Some(body), PATIENCE).await
    }

    /// A call. Dropped before its end it closes the connection. After whatever is no answer the next one goes to
    /// another node.
    pub async fn call(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        patience: Duration,
    ) -> Reply {
        let body = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        let at = self.at();
        let address = self.addresses[at];
        let mut connection = match self.connected(address).await {
            Ok(connection) => connection,
            Err(Silence::NotSent(why) | Silence::Broken(why)) => {
                self.move_on();
                return Reply::NotDone(why);
            }
        };
        let answered = tokio::time::timeout(patience, connection.send(method, path, body)).await;
        let reply = match answered {
            Ok(Ok(answered)) => read(answered.status, &answered.body),
            Ok(Err(Silence::NotSent(why))) => Reply::NotDone(why),
            Ok(Err(Silence::Broken(why))) => Reply::Unknown(why),
            Err(_) => Reply::Unknown("no answer in time".to_owned()),
        };
        match &reply {
            Reply::Done(_) | Reply::Refused(..) => self.connection = Some(connection),
            Reply::NotDone(_) | Reply::Unknown(_) => self.move_on(),
        }
        reply
    }

    /// The connection that there is, if it can still be used, or a new one. Taken out, so that a call that is dropped
    /// leaves none behind on which its answer would be read as the next one's.
    async fn connected(&mut self, address: SocketAddr) -> Result<Connection, Silence> {
        if let Some(mut connection) = self.connection.take()
            && connection.is_usable().await
        {
            return Ok(connection);
        }
        Connection::open(address).await
    }
}

/// What an answer means, by the contract in docs/http-api.md.
fn read(status: u16, body: &[u8]) -> Reply {
    let document: Value = match serde_json::from_slice(body) {
        Ok(document) => document,
        Err(_) if body.is_empty() => Value::Null,
        Err(error) => return Reply::Unknown(format!("status {status} with a body that is no JSON: {error}")),
    };
    let code = document["code"].as_str().unwrap_or("no code").to_owned();
    match (status, code.as_str()) {
        (200..=299, _) => Reply::Done(document),
        (400..=499, _) => Reply::Refused(code, document),
        (503, "unavailable" | "read_only") => Reply::NotDone(code),
        // Also what is no answer of ours: whatever was not said to be undone may have been done.
        _ => Reply::Unknown(format!("{status} {code}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_said_to_be_undone_is() {
        let of = |status, code: &str| read(status, format!(r#"{{"code":"{code}"}}"#).as_bytes());
        assert_eq!(read(204, b""), Reply::Done(Value::Null));
        assert!(matches!(of(409, "bad_version"), Reply::Refused(code, _) if code == "bad_version"));
        assert!(matches!(of(503, "unavailable"), Reply::NotDone(_)));
        assert!(matches!(of(503, "read_only"), Reply::NotDone(_)));
        assert!(matches!(of(503, "outcome_unknown"), Reply::Unknown(_)));
        assert!(matches!(of(500, "internal"), Reply::Unknown(_)));
        assert!(matches!(read(502, b"<html>"), Reply::Unknown(_)));
    }

    #[tokio::test]
    async fn a_refused_connection_means_that_nothing_was_done() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
        let address = listener.local_addr().expect("it is bound");
        drop(listener);
        let reply = Caller::to_one(address).get("/healthz").await;
        assert!(matches!(reply, Reply::NotDone(_)), "{reply:?}");
    }

    #[tokio::test]
    async fn a_connection_that_breaks_after_the_request_leaves_it_open() {
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
        server.await.expect("the server did as it should");
    }
}
