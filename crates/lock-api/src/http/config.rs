//! Limits and timeouts of the HTTP front end. They bound the cost of one caller. The defaults are here and nowhere
//! else.

use std::sync::Arc;
use std::time::Duration;

use listener::{ConnectionLimits, ConnectionMetrics, LiveConnectionLimits};
use parking_lot::RwLock;
use znode_store::PathBounds;

use super::auth::OperatorToken;
use super::origin::KnownNames;
use super::trace::Tracing;

/// Limits that protect a node from its callers. Each can be configured; the defaults suit a small machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpConfig {
    /// Name of the listener in the log.
    pub listener: &'static str,
    /// Maximum size in bytes of the body of a request without znode data.
    pub max_body_bytes: usize,
    /// Maximum size in bytes of the body of a request that writes data into the tree.
    pub max_data_body_bytes: usize,
    /// Bounds on the paths of znodes that are created or mirrored from another server.
    pub paths: PathBounds,
    /// Maximum number of connections. Further callers get an error that asks them to retry, or to use another node.
    pub max_connections: usize,
    /// Maximum number of connections from one address. Further callers get an error that asks them to retry.
    pub max_connections_per_address: usize,
    /// Maximum size of the large bodies of all requests in progress together, in bytes. Bodies of
    /// [`SMALL_BODY_BYTES`] or less do not count, so that ordinary requests always have room.
    pub max_large_bodies_bytes: usize,
    /// Maximum size of all large answers together that are not sent completely yet, in bytes.
    pub max_large_answers_bytes: usize,
    /// Maximum number of calls of one caller that wait for locks.
    pub max_waiting_calls_per_caller: usize,
    /// Maximum time to receive a request's head. An idle connection waits for its next head, so this is also the
    /// maximum idle time.
    pub header_timeout: Duration,
    /// Maximum time from a connection to its first request's head, unless the caller has a client certificate.
    pub first_header_timeout: Duration,
    /// Maximum time to receive a request's body.
    pub body_timeout: Duration,
    /// Maximum time for which a caller may not read before its connection is closed: its host may have
    /// vanished, or its program may have stopped.
    pub send_timeout: Duration,
    /// Time for which the queue place of a caller with a `request_id` is kept after its connection broke, for a
    /// repetition of the same request. Zero: it is not kept.
    pub waiter_grace: Duration,
    /// Time that a stopping server gives requests in progress before it closes their connections.
    pub drain_timeout: Duration,
    /// Operator's token of this node; `None`: it has no operator over HTTP, and cannot be secured that way.
    pub operator: Option<OperatorToken>,
    /// Set if only the operator is served before the cluster is secured.
    pub secured_only: bool,
    /// Host names of this node, and origins of the pages that may call it.
    pub names: KnownNames,
    /// Tracing of requests, if it is on.
    pub tracing: Option<Tracing>,
    /// Metrics of the connections.
    pub meter: ConnectionMetrics,
}

/// Configuration that can be changed while the server runs. Cheap to clone; all clones share one configuration.
#[derive(Debug, Clone)]
pub struct LiveConfig {
    now: Arc<RwLock<Arc<HttpConfig>>>,
    connections: LiveConnectionLimits,
}

impl LiveConfig {
    /// Returns the current configuration.
    pub fn get(&self) -> Arc<HttpConfig> {
        self.now.read().clone()
    }

    /// Returns the current limits of connections.
    pub(super) fn connections(&self) -> &LiveConnectionLimits {
        &self.connections
    }

    /// Sets the configuration for later requests and connections. Settings taken at the start stay: the memory for
    /// large bodies and answers, the drain time, the operator's token and certificates.
    pub fn set(&self, new: HttpConfig) {
        let mut now = self.now.write();
        let mut new = HttpConfig {
            listener: now.listener,
            max_large_bodies_bytes: now.max_large_bodies_bytes,
            max_large_answers_bytes: now.max_large_answers_bytes,
            drain_timeout: now.drain_timeout,
            operator: now.operator.clone(),
            secured_only: now.secured_only,
            ..new
        };
        new.names.certificate = now.names.certificate.clone();
        self.connections.set(new.places());
        *now = Arc::new(new);
    }
}

impl From<HttpConfig> for LiveConfig {
    fn from(config: HttpConfig) -> Self {
        Self {
            connections: config.places().into(),
            now: Arc::new(RwLock::new(Arc::new(config))),
        }
    }
}

/// Maximum length of a path that is created over HTTP. The head of a request has 64 KiB, and can name two such paths
/// (`below` and `after` of a page) with all bytes percent-encoded.
pub const MAX_HTTP_PATH_BYTES: usize = 8 * 1024;

/// Size of a body that does not count: more than any request about locks and sessions has, and small enough
/// for every connection to have one.
pub const SMALL_BODY_BYTES: usize = 16 * 1024;

impl HttpConfig {
    fn places(&self) -> ConnectionLimits {
        ConnectionLimits {
            total: self.max_connections,
            per_address: self.max_connections_per_address,
        }
    }

    /// Configuration of the administration listener: few connections, but reserved ones.
    pub fn administration() -> Self {
        Self {
            listener: "administration",
            // Some people, some monitoring programs, and the connections that they did not close.
            max_connections: 64,
            max_connections_per_address: 64,
            ..Self::default()
        }
    }
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            listener: "HTTP",
            // Names, notes and options take a few kilobytes at most.
            max_body_bytes: 64 * 1024,
            // The largest data of one znode (1 MiB) in base64, with room for the rest of the request.
            max_data_body_bytes: 2 * 1024 * 1024,
            paths: PathBounds {
                bytes: MAX_HTTP_PATH_BYTES,
                depth: MAX_HTTP_PATH_BYTES / 2,
            },
            // Each connection costs a file descriptor and about 16 KiB. Together with peers and clients of other front
            // ends their number has to stay below the usual hard limit of open files.
            max_connections: 10_000,
            // Whole fleets call from one address if a proxy is between, and so do the programs on the node's own
            // machine. Half of the connections leave as many to all others.
            max_connections_per_address: 5_000,
            // Enough for thirty of the largest requests at a time.
            max_large_bodies_bytes: 64 * 1024 * 1024,
            // An answer is as large as the data that one request asks for, a few megabytes.
            max_large_answers_bytes: 128 * 1024 * 1024,
            // One for each connection of an address, and three times as many in batches. Each costs this node some kilobytes, and each node the
            // record of its contender. A caller with more can wait without open calls (`"wait": "queue"`).
            max_waiting_calls_per_caller: 16_384,
            // Shorter than the pools of common clients keep connections, so that this side closes only idle ones first.
            // Long enough for a heartbeat every few seconds to keep its connection.
            header_timeout: Duration::from_secs(60),
            // As long as for handshakes. A caller could otherwise occupy a connection for a minute with half a head.
            first_header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            // Long enough for a person who pauses a download. Without it a stream would stay open for a quarter of an
            // hour after its client's host has vanished, and without end after its client was stopped.
            send_timeout: Duration::from_secs(300),
            // A client that a proxy disconnected retries at once, or after a first pause. The other waiters do not wait
            // longer for a client that does not return.
            waiter_grace: Duration::from_secs(5),
            // A request that does not wait in a queue is answered after a commit. After the node's commit timeout a
            // pending commit is finished or will not finish.
            drain_timeout: Duration::from_secs(2),
            operator: None,
            secured_only: false,
            names: KnownNames::default(),
            tracing: None,
            meter: ConnectionMetrics::default(),
        }
    }
}
