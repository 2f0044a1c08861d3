//! What all connections of this node share: the node, the bounds, who is connected, and what was counted.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use listener::{ConnectionLimiter, ConnectionMetrics, LiveConnectionLimits};
use parking_lot::{Mutex, RwLock};
use raft_node::Node;
use raft_node::metrics::sheet::{self, Registry};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use zk_wire::{ErrorCode, op_code};

use crate::config::ZkConfig;
use crate::requests::{Came, Requests};

/// Where a client has not asked for anything, or what was counted has been reset: no number that a client or a node gives.
pub(crate) const NOTHING: i32 = -1;

/// The front end of one node. Cheap to clone.
#[derive(Clone)]
pub struct Front {
    inner: Arc<Inner>,
}

struct Inner {
    node: Node,
    config: RwLock<Arc<ZkConfig>>,
    /// How often it was changed.
    changes: AtomicU64,
    /// Of all ports together.
    places: ConnectionLimiter,
    bounds: LiveConnectionLimits,
    ports: Ports,
    started: Instant,
    traffic: Traffic,
    requests: Requests,
    meter: ConnectionMetrics,
    clients: Mutex<BTreeMap<u64, Arc<Client>>>,
    /// The bytes that large requests may have which are just coming.
    large_requests: Arc<Semaphore>,
    next_client: AtomicU64,
}

/// Addresses at which a node listens for clients, for those who ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ports {
    /// Without TLS: ZooKeeper's `clientPort`.
    pub plain: Option<SocketAddr>,
    /// With TLS: ZooKeeper's `secureClientPort`.
    pub tls: Option<SocketAddr>,
}

/// The bounds of all connections as one of them has last looked at them: no lock is taken for each request to find that they are the
/// same.
pub(crate) struct Bounds {
    config: Arc<ZkConfig>,
    changes: u64,
}

impl Bounds {
    /// What holds for requests that come now.
    pub fn now(&mut self, front: &Front) -> &ZkConfig {
        if self.changes != front.inner.changes.load(Ordering::Acquire) {
            *self = front.bounds();
        }
        &self.config
    }
}

/// What was counted, since the start or for one client.
#[derive(Debug)]
pub(crate) struct Traffic {
    received: AtomicU64,
    sent: AtomicU64,
    /// Requests that were answered, and how long that took in all and at least and at most: in milliseconds that have passed, as
    /// ZooKeeper measures. So the mean is between the shortest time and the longest, as they are shown.
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

/// What was counted, at one moment. Times are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Counts {
    /// Requests that came.
    pub received: u64,
    /// Answers and notifications that were sent.
    pub sent: u64,
    /// The shortest time until an answer.
    pub min_ms: u64,
    /// The mean.
    pub mean_ms: f64,
    /// The longest.
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

/// A client that is connected, for people who ask.
pub(crate) struct Client {
    pub address: SocketAddr,
    pub since: SystemTime,
    /// 0 while it has none.
    pub session: AtomicI64,
    pub timeout_ms: AtomicI32,
    pub outstanding: AtomicU64,
    /// The number of its last request that has one of its own, or [`NOTHING`].
    pub last_xid: AtomicI32,
    /// What it has asked for last, or [`NOTHING`].
    pub last_op: AtomicI32,
    /// Of what was sent to it last, or [`NOTHING`].
    pub last_zxid: AtomicI64,
    /// When it was answered last, in milliseconds since the front end started; 0 if never.
    pub last_answer_ms: AtomicU64,
    /// How long that took.
    pub last_latency_us: AtomicU64,
    pub traffic: Traffic,
    front: Front,
    number: u64,
}

impl Client {
    /// A request has come. Those that have no number of their own are counted, but do not hide the last one that has;
    /// and what was asked for last is never auth, as in ZooKeeper.
    pub fn received(&self, xid: i32, op: i32) {
        if xid >= 0 {
            self.last_xid.store(xid, Ordering::Relaxed);
        }
        if op != op_code::AUTH {
            self.last_op.store(op, Ordering::Relaxed);
        }
        self.spoke();
    }

    /// A request has come, or a word.
    pub fn spoke(&self) {
        self.traffic.received.fetch_add(1, Ordering::Relaxed);
        self.front.inner.traffic.received.fetch_add(1, Ordering::Relaxed);
    }

    /// An answer or a notification was sent.
    pub fn sent(&self, zxid: i64) {
        self.last_zxid.store(zxid, Ordering::Relaxed);
        self.told();
    }

    /// An answer or a notification was sent, or what is said to a word.
    pub fn told(&self) {
        self.traffic.sent.fetch_add(1, Ordering::Relaxed);
        self.front.inner.traffic.sent.fetch_add(1, Ordering::Relaxed);
    }

    /// A request was answered.
    pub fn answered(&self, came: Came, code: ErrorCode) {
        let now = Instant::now();
        let took = now - came.at;
        self.front.inner.requests.answered(came, code, took);
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

    /// Whether it has a session.
    pub fn has_session(&self) -> bool {
        self.session.load(Ordering::Relaxed) != 0
    }

    /// How many of its requests are not answered.
    pub fn outstanding(&self) -> u64 {
        self.outstanding.load(Ordering::Relaxed)
    }

    /// Begins to count anew, and forgets what was last.
    fn reset(&self) {
        self.traffic.reset();
        self.last_xid.store(NOTHING, Ordering::Relaxed);
        self.last_op.store(NOTHING, Ordering::Relaxed);
        self.last_zxid.store(NOTHING.into(), Ordering::Relaxed);
        self.last_answer_ms.store(0, Ordering::Relaxed);
        self.last_latency_us.store(0, Ordering::Relaxed);
    }
}

/// Takes a client off the list when its connection is gone.
pub(crate) struct Listed(pub Arc<Client>);

impl Drop for Listed {
    fn drop(&mut self) {
        self.0.front.inner.clients.lock().remove(&self.0.number);
    }
}

impl Front {
    /// A front end where nobody is connected. `ports` are where it listens.
    pub fn new(node: Node, config: ZkConfig, ports: Ports) -> Self {
        let large_requests = config.max_large_requests_bytes.min(Semaphore::MAX_PERMITS);
        let bounds = LiveConnectionLimits::from(config.places());
        Self {
            inner: Arc::new(Inner {
                node,
                places: ConnectionLimiter::new(bounds.clone()),
                bounds,
                config: RwLock::new(Arc::new(config)),
                changes: AtomicU64::new(0),
                large_requests: Arc::new(Semaphore::new(large_requests)),
                ports,
                started: Instant::now(),
                traffic: Traffic::default(),
                requests: Requests::default(),
                meter: ConnectionMetrics::default(),
                clients: Mutex::default(),
                next_client: AtomicU64::new(0),
            }),
        }
    }

    /// The node behind it.
    pub fn node(&self) -> &Node {
        &self.inner.node
    }

    /// Its bounds.
    pub fn config(&self) -> Arc<ZkConfig> {
        self.inner.config.read().clone()
    }

    /// The places of all its connections, at whichever port.
    pub(crate) fn places(&self) -> &ConnectionLimiter {
        &self.inner.places
    }

    /// What holds for requests and connections that come from now on. What was taken at the start stays as it was: the room for
    /// large requests, the time to drain, whether only a secured cluster is served, what is traced.
    pub fn reconfigure(&self, new: ZkConfig) {
        let mut now = self.inner.config.write();
        let new = ZkConfig {
            max_large_requests_bytes: now.max_large_requests_bytes,
            drain_timeout: now.drain_timeout,
            secured_only: now.secured_only,
            tracing: now.tracing.clone(),
            ..new
        };
        self.inner.bounds.set(new.places());
        *now = Arc::new(new);
        // When the new one is there: whoever sees that it has changed finds it.
        self.inner.changes.fetch_add(1, Ordering::Release);
    }

    /// The bounds as they are, for a connection to keep.
    pub(crate) fn bounds(&self) -> Bounds {
        let config = self.inner.config.read();
        Bounds {
            // It is only changed while nobody reads it.
            changes: self.inner.changes.load(Ordering::Acquire),
            config: config.clone(),
        }
    }

    /// Whether all clients are turned away: the cluster is not secured and has to be, or this node has not heard of it yet.
    pub(crate) fn serves_nobody(&self) -> bool {
        self.config().secured_only && !self.node().read(|store| store.is_secured())
    }

    /// Where it listens.
    pub fn ports(&self) -> Ports {
        self.inner.ports
    }

    /// Room for a large request that has begun to come; none if others take it.
    pub(crate) fn room_for_large(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes).ok()?;
        self.inner
            .large_requests
            .clone()
            .try_acquire_many_owned(bytes)
            .ok()
    }

    /// For how long it has been there.
    pub fn uptime(&self) -> Duration {
        self.inner.started.elapsed()
    }

    /// What all clients together have asked and been told since the start, or the last reset.
    pub fn counts(&self) -> Counts {
        self.inner.traffic.counts()
    }

    /// What is counted of requests.
    pub(crate) fn requests(&self) -> &Requests {
        &self.inner.requests
    }

    /// What is counted at its door.
    pub fn meter(&self) -> &ConnectionMetrics {
        &self.inner.meter
    }

    /// Has this front end asked at every scrape.
    pub fn register_metrics(&self, registry: &mut Registry) {
        sheet::register(registry, self.clone());
    }

    /// How many clients are connected.
    pub fn connections(&self) -> usize {
        self.inner.clients.lock().len()
    }

    /// Begins to count anew.
    pub(crate) fn reset_counts(&self) {
        self.inner.traffic.reset();
    }

    /// The same for each client.
    pub(crate) fn reset_clients(&self) {
        for client in self.clients() {
            client.reset();
        }
    }

    pub(crate) fn clients(&self) -> Vec<Arc<Client>> {
        self.inner.clients.lock().values().cloned().collect()
    }

    /// Puts a client on the list.
    pub(crate) fn list(&self, address: SocketAddr) -> Listed {
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
        Listed(client)
    }
}
