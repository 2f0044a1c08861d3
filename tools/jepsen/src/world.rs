//! View of a workload of the cluster under test: addresses, a clock, and the end of the run. The faults are
//! invisible to it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use lockgate_check::Nanos;
use tokio_util::sync::CancellationToken;

const NANOS_PER_MS: u64 = 1_000_000;

/// Addresses of a node for clients. They stay the same across restarts.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    /// Node id.
    pub node: u64,
    /// HTTP API.
    pub http: SocketAddr,
    /// ZooKeeper port.
    pub zookeeper: SocketAddr,
    /// Redis port of Lockgate.
    pub redis: SocketAddr,
}

/// Cluster under test as its clients see it.
#[derive(Clone, Debug)]
pub struct World {
    /// All initial nodes, whether they run or not.
    pub endpoints: Arc<[Endpoint]>,
    /// Seed of all random choices of a workload, together with the number of the client.
    pub seed: u64,
    /// Cancelled at the end of the run: clients finish their current operation, withdraw pending requests,
    /// and return.
    pub stop: CancellationToken,
    begun: Instant,
    begun_at: SystemTime,
}

impl World {
    /// Creates a world whose run begins now.
    pub fn new(endpoints: Vec<Endpoint>, seed: u64) -> Self {
        Self {
            endpoints: endpoints.into(),
            seed,
            stop: CancellationToken::new(),
            begun: Instant::now(),
            begun_at: SystemTime::now(),
        }
    }

    /// Converts a moment of the run to the wall clock, in milliseconds since 1970.
    pub fn wall_ms(&self, moment: Nanos) -> u64 {
        let begun = self.begun_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let begun_ms = u64::try_from(begun.as_millis()).expect("the time fits into 64 bits of milliseconds");
        begun_ms + moment / NANOS_PER_MS
    }

    /// Returns the time since the beginning of the run, on the one clock of all clients and faults.
    pub fn now(&self) -> Nanos {
        u64::try_from(self.begun.elapsed().as_nanos()).expect("a run fits into 64 bits of nanoseconds")
    }
}
