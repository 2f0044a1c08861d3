//! Communication between nodes: length-prefixed frames over long-lived TCP connections, one per purpose, on
//! which both sides first check each other's identity.
//!
//! `wire` defines the messages, `peer_registry` admits peers, `peer_connection` sends requests, `server`
//! answers them, `network` implements openraft's interface, `entries` streams entries, `snapshots` snapshots.

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

/// Connections to all peers, opened when first needed.
pub struct Peers {
    registry: Arc<PeerRegistry>,
    connections: Mutex<HashMap<(NodeId, Purpose), PeerConnection>>,
    /// Set if heartbeats are suppressed: this node leads and reaches no quorum.
    is_silent: AtomicBool,
}

impl Peers {
    /// Creates the set without connections.
    pub fn new(registry: Arc<PeerRegistry>) -> Self {
        Self {
            registry,
            connections: Mutex::default(),
            is_silent: AtomicBool::new(false),
        }
    }

    /// Sets whether heartbeats are suppressed. Returns the previous value.
    pub fn set_silent(&self, is_silent: bool) -> bool {
        self.is_silent.swap(is_silent, Ordering::Relaxed)
    }

    /// Returns whether heartbeats are suppressed.
    pub fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    /// Returns this node's side of the handshakes.
    pub fn registry(&self) -> &Arc<PeerRegistry> {
        &self.registry
    }

    /// Returns the connection to a peer for a purpose.
    pub fn connection(&self, to: NodeId, purpose: Purpose) -> PeerConnection {
        let mut connections = self.connections.lock();
        connections
            .entry((to, purpose))
            .or_insert_with(|| PeerConnection::new(self.registry.clone(), to, purpose))
            .clone()
    }

    /// Drops the connections to nodes that are not members, once a membership is known: such nodes were
    /// removed.
    pub fn keep_members(&self) {
        if self.registry.is_formed() {
            let members = self.registry.addresses();
            self.connections
                .lock()
                .retain(|(id, _), _| members.contains_key(id));
        }
    }
}
