//! A client of ZooKeeper's protocol, for ZooKeeper itself and for Lockgate's port of it: one connection with one session. Who
//! loses the connection gives the session up and opens another one; that is not clever, and it is never wrong.

mod connection;
mod mutex;
mod store;

pub use connection::{Connection, Lost};
pub use mutex::ZooKeeperMutex;
pub use store::ZooKeeperStore;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use zk_wire::{ErrorCode, Reply, Request};

use super::answer::Answer;

/// So long a client that was failed by its own server uses another one.
const AWAY: Duration = Duration::from_secs(2);

/// What sessions ask for; servers may give more.
const SESSION_TIMEOUT: Duration = Duration::from_secs(3);

/// A way to an ensemble.
pub struct Client {
    servers: Vec<SocketAddr>,
    home: usize,
    at: usize,
    home_again: Instant,
    connection: Option<Connection>,
}

impl Client {
    /// The client with this number.
    pub fn new(servers: Vec<SocketAddr>, number: usize) -> Self {
        let home = number % servers.len();
        Self {
            servers,
            home,
            at: home,
            home_again: Instant::now(),
            connection: None,
        }
    }

    /// The connection that there is, or a new one with a session of its own.
    pub async fn connected(&mut self) -> Result<&mut Connection, Lost> {
        if self.at != self.home && Instant::now() >= self.home_again && self.connection.is_none() {
            self.at = self.home;
        }
        if self.connection.is_none() {
            match Connection::open(self.servers[self.at], SESSION_TIMEOUT).await {
                Ok(connection) => self.connection = Some(connection),
                Err(lost) => {
                    self.leave();
                    return Err(lost);
                }
            }
        }
        Ok(self.connection.as_mut().expect("it was just made"))
    }

    /// The connection, if there is one.
    pub fn current(&mut self) -> Option<&mut Connection> {
        self.connection.as_mut()
    }

    /// Gives the connection up, and the session with it; the next one is to another server.
    pub fn leave(&mut self) {
        self.connection = None;
        self.at = (self.at + 1) % self.servers.len();
        self.home_again = Instant::now() + AWAY;
    }

    /// Calls. An error of the protocol is an answer; which of them say that nothing was done is told by [`decided`].
    pub async fn call(&mut self, request: &Request) -> Answer<Result<Reply, ErrorCode>> {
        let connection = match self.connected().await {
            Ok(connection) => connection,
            Err(Lost(why)) => return Answer::Failed(why),
        };
        match connection.call(request).await {
            Ok(Ok(reply)) => Answer::Ok(Ok(reply)),
            Ok(Err(code)) if decided(code) => Answer::Ok(Err(code)),
            // The session has ended before the request was carried out, or belongs to another connection.
            Ok(Err(code @ (ErrorCode::SESSION_EXPIRED | ErrorCode::SESSION_MOVED))) => {
                self.leave();
                Answer::Failed(code.to_string())
            }
            Ok(Err(code)) => {
                self.leave();
                Answer::Unknown(code.to_string())
            }
            Err(Lost(why)) => {
                self.leave();
                Answer::Unknown(why)
            }
        }
    }
}

/// Whether a code says that the ensemble has decided, and changed nothing.
fn decided(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::NO_NODE
            | ErrorCode::BAD_VERSION
            | ErrorCode::NODE_EXISTS
            | ErrorCode::NOT_EMPTY
            | ErrorCode::NO_CHILDREN_FOR_EPHEMERALS
            | ErrorCode::BAD_ARGUMENTS
            | ErrorCode::NO_AUTH
            | ErrorCode::INVALID_ACL
    )
}

/// An answer that is not what such a request is answered with.
fn unexpected<T>(reply: Result<Reply, ErrorCode>) -> Answer<T> {
    match reply {
        Ok(reply) => Answer::Unknown(format!("an answer to something else: {reply:?}")),
        Err(code) => Answer::Failed(code.to_string()),
    }
}
