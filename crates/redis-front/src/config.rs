//! Configuration of the front end, and its fixed bounds.

use std::time::Duration;

use listener::ConnectionLimits;
use lock_node::traces::Tracing;
use transport_security::ServerTls;

/// Maximum time from the accept of a connection to its first command. Clients send one at once.
pub(crate) const FIRST_COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time for the rest of a command that has begun to arrive, so that half a command does not occupy memory. Far longer than 64 KiB
/// take over any network.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum time for which a client may leave sent data unacknowledged before its connection is aborted, as for clients of ZooKeeper.
pub(crate) const SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum time for which a stopping node waits for commands that are being executed.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Number of bytes of replies to pipelined commands after which they are sent before the next command is executed.
pub(crate) const SEND_AT_BYTES: usize = 16 * 1024;

/// Maximum number of commands between `MULTI` and `EXEC`, which have the bytes of one request at most. Transactions of lock libraries have a few.
pub(crate) const MAX_QUEUED_COMMANDS: usize = 128;

/// Maximum number of bytes of the name that a client gives itself.
pub(crate) const MAX_NAME_BYTES: usize = 256;

/// Maximum number of keys that `KEYS`, `SCAN`, `DBSIZE` and `FLUSHDB` visit. They are for tests and people; `GET /v1/locks` has pages.
pub(crate) const MAX_LISTED_KEYS: usize = 10_000;

/// Settings of the front end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisConfig {
    /// Name of the locks' parent: the key `k` is the lock `PREFIX/k`.
    pub prefix: String,
    /// Maximum number of connections. Further ones get an error and are closed.
    pub max_connections: usize,
    /// Maximum number of connections per client address.
    pub max_connections_per_address: usize,
    /// True if no client is served before the cluster is secured.
    pub secured_only: bool,
    /// True if each node confirms what another node has granted, for clients of Redlock that take the nodes for independent servers.
    pub redlock: bool,
    /// Commands that are refused, in capital letters.
    pub disabled_commands: Vec<String>,
    /// Destination of the spans of commands; `None` without traces.
    pub tracing: Option<Tracing>,
}

impl RedisConfig {
    pub(crate) fn connection_limits(&self) -> ConnectionLimits {
        ConnectionLimits {
            total: self.max_connections,
            per_address: self.max_connections_per_address,
        }
    }
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            prefix: "redis".to_owned(),
            // As for clients of ZooKeeper; also Redis' own default.
            max_connections: 10_000,
            max_connections_per_address: 5_000,
            secured_only: false,
            redlock: false,
            disabled_commands: Vec::new(),
            tracing: None,
        }
    }
}

/// Protection of the connections of the port.
#[derive(Debug, Clone)]
pub enum Protection {
    /// TLS only. A client also has the identity in its certificate.
    Tls(ServerTls),
    /// No TLS, because everyone who can read the connections is trusted.
    Trusted,
    /// No TLS, although others may read the connections. Tokens are rejected.
    Exposed,
}
