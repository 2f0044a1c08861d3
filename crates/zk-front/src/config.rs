//! The bounds of the front end: what one client can cost it. Defaults stand here and nowhere else.

use std::time::Duration;

use listener::ConnectionLimits;
use raft_node::traces::Tracing;
use znode_store::PathBounds;

use crate::words::FourLetterWord;

/// Bounds that protect a node from its clients. Every one of them can be set; the defaults suit a small machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZkConfig {
    /// The longest request in bytes, without its length. A longer one ends the connection.
    pub max_request_bytes: usize,
    /// Bounds on the paths of znodes that clients create.
    pub paths: PathBounds,
    /// How many connections are served at once. Who comes then is hung up on, and tries another server.
    pub max_connections: usize,
    /// How many of them one address may have: ZooKeeper's `maxClientCnxns`.
    pub max_connections_per_address: usize,
    /// How many requests of one connection may wait for their answers. What it sends beyond that is not read for so long.
    pub max_outstanding: usize,
    /// How many bytes those of them may have that are not begun yet. Likewise.
    pub max_outstanding_bytes: usize,
    /// How many bytes the large requests may have together that all clients are just sending: ZooKeeper's
    /// `largeRequestMaxBytes`. Who begins one more is hung up on. Those of [`LARGE_REQUEST_BYTES`] or less do not count.
    pub max_large_requests_bytes: usize,
    /// How long a client may take until it has said what it wants.
    pub handshake_timeout: Duration,
    /// How long a client may leave what was sent to it without taking it, before its connection is cut.
    pub send_timeout: Duration,
    /// How long a stopping server waits for requests that are on their way before it cuts their connections.
    pub drain_timeout: Duration,
    /// Who may do everything, whatever access control lists say: `user:base64(sha1(user:password))`, as ZooKeeper's
    /// `zookeeper.DigestAuthenticationProvider.superDigest`. None: nobody.
    pub super_digest: Option<String>,
    /// The four-letter words that are answered.
    pub four_letter_words: Vec<FourLetterWord>,
    /// Whether nobody is served before the cluster is secured.
    pub secured_only: bool,
    /// Where traced requests are told of; `None`: nothing is traced.
    pub tracing: Option<Tracing>,
}

/// What is longer is a large request: ZooKeeper's own `largeRequestThreshold` is off; this is more than any recipe sends, and
/// little enough for every connection to be in the middle of one.
pub const LARGE_REQUEST_BYTES: usize = 16 * 1024;

impl ZkConfig {
    pub(crate) fn places(&self) -> ConnectionLimits {
        ConnectionLimits {
            total: self.max_connections,
            per_address: self.max_connections_per_address,
        }
    }
}

impl Default for ZkConfig {
    fn default() -> Self {
        Self {
            // ZooKeeper's own default of `jute.maxbuffer`, which its clients have, too.
            max_request_bytes: 0xf_ffff,
            // As in ZooKeeper, what fits into a request.
            paths: PathBounds::ALL,
            // Each one costs a file descriptor and some kilobytes. Together with peers and HTTP it has to stay below the
            // usual hard limit of open files.
            max_connections: 10_000,
            // ZooKeeper's is 60, which every user has to raise who has one machine with many clients. Half leaves as much to others.
            max_connections_per_address: 5_000,
            // ZooKeeper's own for a whole server. More in flight brings no throughput: they share one log.
            max_outstanding: 1_000,
            // A few of the largest.
            max_outstanding_bytes: 4 * 1024 * 1024,
            // ZooKeeper's own.
            max_large_requests_bytes: 100 * 1024 * 1024,
            // Clients say it in their first packet.
            handshake_timeout: Duration::from_secs(10),
            // Long enough for a program that was stopped in a debugger for a moment; its session is over by then.
            send_timeout: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(2),
            super_digest: None,
            // As in ZooKeeper: the others show who is connected and what they watch, or work for whoever asks.
            four_letter_words: vec![FourLetterWord::Srvr],
            secured_only: false,
            tracing: None,
        }
    }
}
