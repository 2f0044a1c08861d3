//! Client of ZooKeeper's protocol, for ZooKeeper itself and for Lockgate's ZooKeeper port: one connection
//! with one session. A client that loses the connection abandons the session and opens another one. That is
//! not clever, and it is never wrong.

mod connection;
mod mutex;
mod store;

pub use connection::{Connection, ConnectionLost};
pub use mutex::ZooKeeperMutex;
pub use store::ZooKeeperStore;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use zk_wire::{ErrorCode, Reply, Request};

use super::result::CallResult;

/// Time for which a client whose own server has failed uses another one.
const FALLBACK_PERIOD: Duration = Duration::from_secs(2);

/// Requested session timeout; servers may grant more.
const SESSION_TIMEOUT: Duration = Duration::from_secs(3);

/// Connection of one client to an ensemble, with its choice of servers.
pub struct Client {
    servers: Vec<SocketAddr>,
    home: usize,
    at: usize,
    return_home_at: Instant,
    connection: Option<Connection>,
}

impl Client {
    /// Creates the client with this number.
    pub fn new(servers: Vec<SocketAddr>, number: usize) -> Self {
        let home = number % servers.len();
        Self {
            servers,
            home,
            at: home,
            return_home_at: Instant::now(),
            connection: None,
        }
    }

    /// Returns the current connection, or a new one with a session of its own.
    pub async fn connected(&mut self) -> Result<&mut Connection, ConnectionLost> {
        if self.at != self.home && Instant::now() >= self.return_home_at && self.connection.is_none() {
            self.at = self.home;
        }
        if self.connection.is_none() {
            match Connection::open(self.servers[self.at], SESSION_TIMEOUT).await {
                Ok(connection) => self.connection = Some(connection),
                Err(error) => {
                    self.abandon();
                    return Err(error);
                }
            }
        }
        Ok(self.connection.as_mut().expect("it was just made"))
    }

    /// Returns the current connection, if there is one.
    pub fn current(&mut self) -> Option<&mut Connection> {
        self.connection.as_mut()
    }

    /// Abandons the connection and its session; the next connection uses another server.
    pub fn abandon(&mut self) {
        self.connection = None;
        self.at = (self.at + 1) % self.servers.len();
        self.return_home_at = Instant::now() + FALLBACK_PERIOD;
    }

    /// Sends a request. A protocol error is a definite answer if [`decided`] says that nothing was changed.
    pub async fn call(&mut self, request: &Request) -> CallResult<Result<Reply, ErrorCode>> {
        let connection = match self.connected().await {
            Ok(connection) => connection,
            Err(ConnectionLost(why)) => return CallResult::Failed(why),
        };
        match connection.call(request).await {
            Ok(Ok(reply)) => CallResult::Ok(Ok(reply)),
            Ok(Err(code)) if decided(code) => CallResult::Ok(Err(code)),
            // The session ended before the request was executed, or belongs to another connection.
            Ok(Err(code @ (ErrorCode::SESSION_EXPIRED | ErrorCode::SESSION_MOVED))) => {
                self.abandon();
                CallResult::Failed(code.to_string())
            }
            Ok(Err(code)) => {
                self.abandon();
                CallResult::Unknown(code.to_string())
            }
            Err(ConnectionLost(why)) => {
                self.abandon();
                CallResult::Unknown(why)
            }
        }
    }
}

/// Returns whether a code means that the ensemble has processed the request and changed nothing.
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

/// Reports a reply of the wrong type for its request.
fn unexpected<T>(reply: Result<Reply, ErrorCode>) -> CallResult<T> {
    match reply {
        Ok(reply) => CallResult::Unknown(format!("a reply of another type: {reply:?}")),
        Err(code) => CallResult::Failed(code.to_string()),
    }
}
