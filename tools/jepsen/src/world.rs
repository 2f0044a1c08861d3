//! What a workload gets to see of the cluster under test: addresses, a clock, and when to stop. Not the faults.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use lockgate_check::Nanos;
use tokio_util::sync::CancellationToken;

const NANOS_PER_MS: u64 = 1_000_000;

/// Where clients find a node. The addresses stay the same over restarts.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    /// Which node.
    pub node: u64,
    /// Its HTTP API.
    pub http: SocketAddr,
    /// Its port for clients of ZooKeeper.
    pub zookeeper: SocketAddr,
}

/// A cluster under test, as clients know it.
#[derive(Clone, Debug)]
pub struct World {
    /// All nodes that were there at the beginning, also those that are down.
    pub endpoints: Arc<[Endpoint]>,
    /// What every random choice of a workload is drawn from, together with the number of the client.
    pub seed: u64,
    /// Cancelled when clients are to end: they finish what they are at, withdraw what waits, and return.
    pub stop: CancellationToken,
    begun: Instant,
    begun_at: SystemTime,
}

impl World {
    /// A world that begins now.
    pub fn new(endpoints: Vec<Endpoint>, seed: u64) -> Self {
        Self {
            endpoints: endpoints.into(),
            seed,
            stop: CancellationToken::new(),
            begun: Instant::now(),
            begun_at: SystemTime::now(),
        }
    }

    /// A moment of the run by the wall clock, in milliseconds since 1970.
    pub fn wall_ms(&self, moment: Nanos) -> u64 {
        let begun = self.begun_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let begun_ms = u64::try_from(begun.as_millis()).expect("it is not that late");
        begun_ms + moment / NANOS_PER_MS
    }

    /// The time since the run began, on the one clock of all clients and faults.
    pub fn now(&self) -> Nanos {
        u64::try_from(self.begun.elapsed().as_nanos()).expect("a run does not last for centuries")
    }
}
