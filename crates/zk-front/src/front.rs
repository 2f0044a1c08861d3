//! State shared by all connections of this node: the node, the configuration, the connected clients, and the
//! counters.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use listener::{ConnectionLimiter, ConnectionMetrics, LiveConnectionLimits};
use lock_node::Node;
use lock_node::metrics::text_format::{self, Instruments, Registry, Sheet};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use zk_wire::{ErrorCode, op_code};

use crate::config::ZkConfig;
use crate::request_metrics::{Received, RequestMetrics};

/// Value of a client's last request, operation or zxid before the first one, or after a reset; no client or
/// node sends it.
pub(crate) const NOTHING: i32 = -1;

/// ZooKeeper front end of one node. Cheap to clone.
#[derive(Clone)]
pub struct Front {
    inner: Arc<Inner>,
}

struct Inner {
    node: Node,
    config: RwLock<Arc<ZkConfig>>,
    /// Number of changes of `config`.
    changes: AtomicU64,
    /// Connection limits of all ports together.
    limiter: ConnectionLimiter,
    bounds: LiveConnectionLimits,
    ports: Ports,
    started: Instant,
    traffic: Traffic,
    requests: RequestMetrics,
    metrics: ConnectionMetrics,
    clients: Mutex<BTreeMap<u64, Arc<Client>>>,
    /// Memory for large requests that are being received, in bytes.
    large_requests: Arc<Semaphore>,
    next_client: AtomicU64,
}

/// Addresses at which a node listens for clients, for `conf`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ports {
    /// Without TLS: ZooKeeper's `clientPort`.
    pub plain: Option<SocketAddr>,
    /// With TLS: ZooKeeper's `secureClientPort`.
    pub tls: Option<SocketAddr>,
}

/// Configuration as one connection has last read it, so that a request takes no lock to find it unchanged.
pub(crate) struct CachedConfig {
    config: Arc<ZkConfig>,
    changes: u64,
}

impl CachedConfig {
    /// Returns the current configuration.
    pub fn current(&mut self, front: &Front) -> &ZkConfig {
        if self.changes != front.inner.changes.load(Ordering::Acquire) {
            *self = front.cached_config();
        }
        &self.config
    }
}

/// Counters, of the front end since the start or of one client.
#[derive(Debug)]
pub(crate) struct Traffic {
    received: AtomicU64,
    sent: AtomicU64,
    /// Number of answered requests, and the sum, minimum and maximum of their durations in full milliseconds,
    /// as ZooKeeper measures them. So the mean lies between the minimum and the maximum as they are shown.
    answered: AtomicU64,
    sum_ms: AtomicU64,
    min_ms: AtomicU64,
    max_ms: AtomicU64,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            sum_ms: AtomicU64::new(0),
            min_ms: AtomicU64::new(u64::MAX),
            max_ms: AtomicU64::new(0),
        }
    }
}

/// Values of the counters at one moment. Times are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Counts {
    /// Received requests.
    pub received: u64,
    /// Sent replies and notifications.
    pub sent: u64,
    /// Minimum duration of a request.
    pub min_ms: u64,
    /// Mean duration.
    pub mean_ms: f64,
    /// Maximum duration.
    pub max_ms: u64,
}

impl Traffic {
    fn counts(&self) -> Counts {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let answered = get(&self.answered);
        Counts {
            received: get(&self.received),
            sent: get(&self.sent),
            min_ms: if answered == 0 { 0 } else { get(&self.min_ms) },
            mean_ms: if answered == 0 {
                0.0
            } else {
                get(&self.sum_ms) as f64 / answered as f64
            },
            max_ms: get(&self.max_ms),
        }
    }

    fn reset(&self) {
        for number in [
            &self.received,
            &self.sent,
            &self.answered,
            &self.sum_ms,
            &self.max_ms,
        ] {
            number.store(0, Ordering::Relaxed);
        }
        self.min_ms.store(u64::MAX, Ordering::Relaxed);
    }

    fn answered(&self, took: Duration) {
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        self.answered.fetch_add(1, Ordering::Relaxed);
        self.sum_ms.fetch_add(ms, Ordering::Relaxed);
        self.min_ms.fetch_min(ms, Ordering::Relaxed);
        self.max_ms.fetch_max(ms, Ordering::Relaxed);
    }
}

/// Connected client, as shown by four-letter words.
pub(crate) struct Client {
    pub address: SocketAddr,
    pub since: SystemTime,
    /// Session id; 0 before it has one.
    pub session: AtomicI64,
    pub timeout_ms: AtomicI32,
    pub outstanding: AtomicU64,
    /// Xid of its last request with a non-negative one, or [`NOTHING`].
    pub last_xid: AtomicI32,
    /// Operation of its last request, or [`NOTHING`].
    pub last_op: AtomicI32,
    /// Zxid of the last reply or notification, or [`NOTHING`].
    pub last_zxid: AtomicI64,
    /// Time of the last reply, in milliseconds since the front end started; 0 before the first one.
    pub last_answer_ms: AtomicU64,
    /// Duration of the last request.
    pub last_latency_us: AtomicU64,
    pub traffic: Traffic,
    front: Front,
    number: u64,
}

impl Client {
    /// Counts a request. A request with a negative xid is counted, but does not replace the last xid; and
    /// auth does not replace the last operation, as in ZooKeeper.
    pub fn received(&self, xid: i32, op: i32) {
        if xid >= 0 {
            self.last_xid.store(xid, Ordering::Relaxed);
        }
        if op != op_code::AUTH {
            self.last_op.store(op, Ordering::Relaxed);
        }
        self.count_received();
    }

    /// Counts a request or a four-letter word.
    pub fn count_received(&self) {
        self.traffic.received.fetch_add(1, Ordering::Relaxed);
        self.front.inner.traffic.received.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a reply or a notification.
    pub fn sent(&self, zxid: i64) {
        self.last_zxid.store(zxid, Ordering::Relaxed);
        self.count_sent();
    }

    /// Counts a reply, a notification, or the answer to a four-letter word.
    pub fn count_sent(&self) {
        self.traffic.sent.fetch_add(1, Ordering::Relaxed);
        self.front.inner.traffic.sent.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an answered request.
    pub fn answered(&self, received: Received, code: ErrorCode) {
        let now = Instant::now();
        let took = now - received.at;
        self.front.inner.requests.answered(received, code, took);
        self.traffic.answered(took);
        self.front.inner.traffic.answered(took);
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.last_latency_us.store(us, Ordering::Relaxed);
        let uptime = now - self.front.inner.started;
        let now_ms = u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX);
        self.last_answer_ms.store(now_ms, Ordering::Relaxed);
    }

    pub fn counts(&self) -> Counts {
        self.traffic.counts()
    }

    /// Returns whether the client has a session.
    pub fn has_session(&self) -> bool {
        self.session.load(Ordering::Relaxed) != 0
    }

    /// Returns the number of its unanswered requests.
    pub fn outstanding(&self) -> u64 {
        self.outstanding.load(Ordering::Relaxed)
    }

    /// Resets the counters and the last values.
    fn reset(&self) {
        self.traffic.reset();
        self.last_xid.store(NOTHING, Ordering::Relaxed);
        self.last_op.store(NOTHING, Ordering::Relaxed);
        self.last_zxid.store(NOTHING.into(), Ordering::Relaxed);
        self.last_answer_ms.store(0, Ordering::Relaxed);
        self.last_latency_us.store(0, Ordering::Relaxed);
    }
}

/// Registration of a client, which ends when its connection does.
pub(crate) struct RegisteredClient(pub Arc<Client>);

impl Drop for RegisteredClient {
    fn drop(&mut self) {
        self.0.front.inner.clients.lock().remove(&self.0.number);
    }
}

impl Front {
    /// Creates a front end without clients. `ports` are the addresses at which it listens.
    pub fn new(node: Node, config: ZkConfig, ports: Ports) -> Self {
        let large_requests = config.max_large_requests_bytes.min(Semaphore::MAX_PERMITS);
        let bounds = LiveConnectionLimits::from(config.connection_limits());
        Self {
            inner: Arc::new(Inner {
                node,
                limiter: ConnectionLimiter::new(bounds.clone()),
                bounds,
                config: RwLock::new(Arc::new(config)),
                changes: AtomicU64::new(0),
                large_requests: Arc::new(Semaphore::new(large_requests)),
                ports,
                started: Instant::now(),
                traffic: Traffic::default(),
                requests: RequestMetrics::default(),
                metrics: ConnectionMetrics::default(),
                clients: Mutex::default(),
                next_client: AtomicU64::new(0),
            }),
        }
    }

    /// Returns the node.
    pub fn node(&self) -> &Node {
        &self.inner.node
    }

    /// Returns the configuration.
    pub fn config(&self) -> Arc<ZkConfig> {
        self.inner.config.read().clone()
    }

    /// Returns the connection limiter of all ports.
    pub(crate) fn limiter(&self) -> &ConnectionLimiter {
        &self.inner.limiter
    }

    /// Changes the configuration for further requests and connections. Some values stay as they were at the
    /// start: the memory for large requests, the drain timeout, whether only a secured cluster is served, and
    /// tracing.
    pub fn reconfigure(&self, new: ZkConfig) {
        let mut now = self.inner.config.write();
        let new = ZkConfig {
            max_large_requests_bytes: now.max_large_requests_bytes,
            drain_timeout: now.drain_timeout,
            secured_only: now.secured_only,
            tracing: now.tracing.clone(),
            ..new
        };
        self.inner.bounds.set(new.connection_limits());
        *now = Arc::new(new);
        // After the new configuration is stored: a connection that sees the changed number finds it.
        self.inner.changes.fetch_add(1, Ordering::Release);
    }

    /// Returns the configuration, for a connection to cache.
    pub(crate) fn cached_config(&self) -> CachedConfig {
        let config = self.inner.config.read();
        CachedConfig {
            // The number changes only under the write lock.
            changes: self.inner.changes.load(Ordering::Acquire),
            config: config.clone(),
        }
    }

    /// Returns whether all clients are rejected because the cluster has to be secured first, or this node has
    /// not learnt yet that it is.
    pub(crate) fn rejects_all_clients(&self) -> bool {
        self.config().secured_only && !self.node().read_facts(|store| store.is_secured())
    }

    /// Returns the addresses at which it listens.
    pub fn ports(&self) -> Ports {
        self.inner.ports
    }

    /// Acquires memory for a large request that is being received; `None` if other requests use it up.
    pub(crate) fn reserve_large_request(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes).ok()?;
        self.inner
            .large_requests
            .clone()
            .try_acquire_many_owned(bytes)
            .ok()
    }

    /// Returns the time since the start.
    pub fn uptime(&self) -> Duration {
        self.inner.started.elapsed()
    }

    /// Returns the counters of all clients together since the start, or the last reset.
    pub fn counts(&self) -> Counts {
        self.inner.traffic.counts()
    }

    /// Returns the metrics of requests.
    pub(crate) fn requests(&self) -> &RequestMetrics {
        &self.inner.requests
    }

    /// Returns the metrics of connections.
    pub fn metrics(&self) -> &ConnectionMetrics {
        &self.inner.metrics
    }

    /// Registers the metrics of this front end.
    pub fn register_metrics(&self, registry: &mut Registry) {
        text_format::register(registry, self.clone());
    }

    /// Returns the number of connected clients.
    pub fn connections(&self) -> usize {
        self.inner.clients.lock().len()
    }

    /// Resets the counters of the front end.
    pub(crate) fn reset_counts(&self) {
        self.inner.traffic.reset();
    }

    /// Resets the counters of each client.
    pub(crate) fn reset_clients(&self) {
        for client in self.clients() {
            client.reset();
        }
    }

    pub(crate) fn clients(&self) -> Vec<Arc<Client>> {
        self.inner.clients.lock().values().cloned().collect()
    }

    /// Registers a client.
    pub(crate) fn register(&self, address: SocketAddr) -> RegisteredClient {
        let number = self.inner.next_client.fetch_add(1, Ordering::Relaxed);
        let client = Arc::new(Client {
            address,
            since: SystemTime::now(),
            session: AtomicI64::new(0),
            timeout_ms: AtomicI32::new(0),
            outstanding: AtomicU64::new(0),
            last_xid: AtomicI32::new(NOTHING),
            last_op: AtomicI32::new(NOTHING),
            last_zxid: AtomicI64::new(NOTHING.into()),
            last_answer_ms: AtomicU64::new(0),
            last_latency_us: AtomicU64::new(0),
            traffic: Traffic::default(),
            front: self.clone(),
            number,
        });
        self.inner.clients.lock().insert(number, client.clone());
        RegisteredClient(client)
    }
}
/// Metrics of the front end.
impl Instruments for Front {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let clients = self.clients();
        let with_session = clients.iter().filter(|client| client.has_session()).count();
        let help = "Clients of ZooKeeper that are connected and have a session";
        sheet.gauge("zookeeper_clients", help, with_session)?;
        let outstanding: u64 = clients.iter().map(|client| client.outstanding()).sum();
        let help = "Their requests that are not answered yet";
        sheet.gauge("zookeeper_requests_in_flight", help, outstanding)?;
        self.requests().write(sheet)
    }
}
