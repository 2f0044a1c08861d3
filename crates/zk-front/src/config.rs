//! Limits of the front end on the resources that clients use, and their defaults.

use std::time::Duration;

use listener::ConnectionLimits;
use lock_node::traces::Tracing;
use znode_store::PathBounds;

use crate::four_letter_word::FourLetterWord;

/// Limits that protect a node from its clients. Every one of them can be configured; the defaults suit a
/// small machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZkConfig {
    /// Maximum size of a request in bytes, without its length field. A larger request ends the connection.
    pub max_request_bytes: usize,
    /// Limits on the paths of znodes that clients create.
    pub paths: PathBounds,
    /// Maximum number of connections. Further ones are closed at once, and their clients try another server.
    pub max_connections: usize,
    /// Maximum number of connections per client address: ZooKeeper's `maxClientCnxns`.
    pub max_connections_per_address: usize,
    /// Maximum number of unanswered requests per connection. Beyond it the node stops reading from the
    /// connection.
    pub max_outstanding: usize,
    /// Maximum total size in bytes of a connection's requests that are not started yet. Beyond it the node
    /// stops reading from the connection.
    pub max_outstanding_bytes: usize,
    /// Maximum total size in bytes of large requests that are being received from all clients: ZooKeeper's
    /// `largeRequestMaxBytes`. The connection of a further large request is closed. Requests of up to
    /// [`LARGE_REQUEST_BYTES`] do not count.
    pub max_large_requests_bytes: usize,
    /// Maximum time from the accept of a connection to its first request.
    pub handshake_timeout: Duration,
    /// Maximum time for which a client may leave sent data unacknowledged before its connection is aborted.
    pub send_timeout: Duration,
    /// Maximum time for which a stopping server waits for pending requests before it aborts their
    /// connections.
    pub drain_timeout: Duration,
    /// Superuser, who bypasses all access control lists: `user:base64(sha1(user:password))`, as ZooKeeper's
    /// `zookeeper.DigestAuthenticationProvider.superDigest`. `None` disables the superuser.
    pub super_digest: Option<String>,
    /// Four-letter words that are answered.
    pub four_letter_words: Vec<FourLetterWord>,
    /// True if no client is served before the cluster is secured.
    pub secured_only: bool,
    /// Collector of traced requests; `None` disables tracing.
    pub tracing: Option<Tracing>,
}

/// Size in bytes above which a request is large. ZooKeeper's own `largeRequestThreshold` is off by default.
/// This size is more than any recipe sends, and small enough for every connection to be receiving one.
pub const LARGE_REQUEST_BYTES: usize = 16 * 1024;

impl ZkConfig {
    pub(crate) fn connection_limits(&self) -> ConnectionLimits {
        ConnectionLimits {
            total: self.max_connections,
            per_address: self.max_connections_per_address,
        }
    }
}

impl Default for ZkConfig {
    fn default() -> Self {
        Self {
            // ZooKeeper's default of `jute.maxbuffer`, which its clients have, too.
            max_request_bytes: 0xf_ffff,
            // Every path that fits into a request, as in ZooKeeper.
            paths: PathBounds::ALL,
            // Each connection costs a file descriptor and some kilobytes. Together with peers and HTTP the
            // number has to stay below the usual hard limit of open files.
            max_connections: 10_000,
            // ZooKeeper's default is 60, which has to be raised for every machine with many clients. Half of
            // all connections leaves as many to other addresses.
            max_connections_per_address: 5_000,
            // ZooKeeper's default for a whole server. More requests in flight do not increase throughput,
            // because they share one log.
            max_outstanding: 1_000,
            // A few requests of the maximum size.
            max_outstanding_bytes: 4 * 1024 * 1024,
            // ZooKeeper's default.
            max_large_requests_bytes: 100 * 1024 * 1024,
            // Clients send their first request at once.
            handshake_timeout: Duration::from_secs(10),
            // Long enough for a program that is paused in a debugger for a moment; its session has expired by
            // then.
            send_timeout: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(2),
            super_digest: None,
            // As in ZooKeeper: the other words disclose clients and watches, or cost the server work for any
            // caller.
            four_letter_words: vec![FourLetterWord::Srvr],
            secured_only: false,
            tracing: None,
        }
    }
}
