//! Communication of nodes: length-prefixed frames over long-lived TCP connections, one connection for
//! each purpose, both sides' identity checked first.
//!
//! `wire` defines the messages, `registry` admits peers, `connection` sends questions, `server` answers them, `network` is openraft's
//! interface, `entries` streams entries, `snapshots` snapshots.

pub mod entries;
#[cfg(feature = "failpoints")]
mod fail_points;
pub mod peer_registry;
pub mod peer_connection;
pub mod network;
pub mod server;
pub mod snapshots;
pub mod stream;
pub mod wire;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use peer_connection::{PeerConnection, PeerConnectionError};
pub use peer_registry::PeerRegistry;
pub use snapshots::SnapshotTraffic;
pub use wire::Purpose;

use crate::ids::NodeId;
use raft_log::sync::Mutex;

/// The lines to all peers, made when they are first needed.
pub struct Peers {
    registry: Arc<PeerRegistry>,
    connections: Mutex<HashMap<(NodeId, Purpose), PeerConnection>>,
    /// This node leads and reaches no quorum: it sends no heartbeats at present.
    is_silent: AtomicBool,
}

impl Peers {
    /// No lines yet.
    pub fn new(registry: Arc<PeerRegistry>) -> Self {
        Self {
            registry,
            connections: Mutex::default(),
            is_silent: AtomicBool::new(false),
        }
    }

    /// Sets whether heartbeats are held back. Returns whether they were.
    pub fn set_silent(&self, is_silent: bool) -> bool {
        self.is_silent.swap(is_silent, Ordering::Relaxed)
    }

    /// Returns whether heartbeats are suppressed.
    pub fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    /// This node's side of every handshake.
    pub fn registry(&self) -> &Arc<PeerRegistry> {
        &self.registry
    }

    /// The line to a peer for a purpose.
    pub fn connection(&self, to: NodeId, purpose: Purpose) -> PeerConnection {
        let mut connections = self.connections.lock();
        connections
            .entry((to, purpose))
            .or_insert_with(|| PeerConnection::new(self.registry.clone(), to, purpose))
            .clone()
    }

    /// Gives up the lines to all but the members, once there are some: others were removed.
    pub fn keep_members(&self) {
        if self.registry.is_formed() {
            let members = self.registry.addresses();
            self.connections
                .lock()
                .retain(|(id, _), _| members.contains_key(id));
        }
    }
}
