//! State shared by all connections of this node: the node, the configuration and the counters.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use listener::{ConnectionLimiter, ConnectionMetrics, LiveConnectionLimits};
use lock_node::Node;
use lock_node::metrics::text_format::{self, Instruments, Registry, Sheet};
use parking_lot::RwLock;
use tokio::time::Instant;

use crate::answers::Answers;
use crate::config::RedisConfig;
use crate::metrics::CommandMetrics;
use crate::scripts::ScriptCache;
use crate::wakes::Wakes;

/// Redis front end of one node. Cheap to clone.
#[derive(Clone)]
pub struct Front {
    inner: Arc<Inner>,
}

struct Inner {
    node: Node,
    config: RwLock<Arc<RedisConfig>>,
    limiter: ConnectionLimiter,
    bounds: LiveConnectionLimits,
    metrics: ConnectionMetrics,
    started: Instant,
    next_client: AtomicI64,
    answers: Answers,
    wakes: Wakes,
    scripts: ScriptCache,
    commands: CommandMetrics,
}

impl Front {
    /// Creates a front end without clients.
    pub fn new(node: Node, config: RedisConfig) -> Self {
        let bounds = LiveConnectionLimits::from(config.connection_limits());
        Self {
            inner: Arc::new(Inner {
                node,
                limiter: ConnectionLimiter::new(bounds.clone()),
                bounds,
                metrics: ConnectionMetrics::default(),
                started: Instant::now(),
                next_client: AtomicI64::new(1),
                answers: Answers::new(config.redlock),
                wakes: Wakes::new(),
                scripts: ScriptCache::default(),
                commands: CommandMetrics::default(),
                config: RwLock::new(Arc::new(config)),
            }),
        }
    }

    /// Returns the node.
    pub fn node(&self) -> &Node {
        &self.inner.node
    }

    /// Returns the configuration.
    pub fn config(&self) -> Arc<RedisConfig> {
        self.inner.config.read().clone()
    }

    /// Changes the connection limits. The other settings stay as they were at the start.
    pub fn reconfigure(&self, new: RedisConfig) {
        let mut now = self.inner.config.write();
        self.inner.bounds.set(new.connection_limits());
        *now = Arc::new(RedisConfig {
            prefix: now.prefix.clone(),
            secured_only: now.secured_only,
            redlock: now.redlock,
            tracing: now.tracing.clone(),
            ..new
        });
    }

    /// Returns the counters of the port's connections.
    pub fn metrics(&self) -> &ConnectionMetrics {
        &self.inner.metrics
    }

    /// Adds the metrics of commands.
    pub fn register_metrics(&self, registry: &mut Registry) {
        text_format::register(registry, self.clone());
    }

    pub(crate) fn command_metrics(&self) -> &CommandMetrics {
        &self.inner.commands
    }

    /// Returns the memory of this node's answers about leases.
    pub(crate) fn answers(&self) -> &Answers {
        &self.inner.answers
    }

    /// Returns the scripts that this node remembers.
    pub(crate) fn scripts(&self) -> &ScriptCache {
        &self.inner.scripts
    }

    /// Returns the ends of holds for subscribed connections.
    pub(crate) fn wakes(&self) -> &Wakes {
        &self.inner.wakes
    }

    pub(crate) fn limiter(&self) -> &ConnectionLimiter {
        &self.inner.limiter
    }

    /// Returns the time since the start in seconds.
    pub(crate) fn uptime_seconds(&self) -> u64 {
        self.inner.started.elapsed().as_secs()
    }

    /// Returns the id of a new connection, for `CLIENT ID`.
    pub(crate) fn next_client_id(&self) -> i64 {
        self.inner.next_client.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns whether all clients are rejected because the cluster has to be secured first, or this node has not learnt yet that it is.
    pub(crate) fn rejects_all_clients(&self) -> bool {
        self.config().secured_only && !self.node().read_facts(|store| store.is_secured())
    }
}

impl Instruments for Front {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        self.inner.commands.write(sheet)
    }
}
