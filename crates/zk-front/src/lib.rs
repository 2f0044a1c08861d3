//! Front end for ZooKeeper clients: Curator, kazoo, zkCli and every other client work unmodified, over the
//! same tree, sessions and watches as all other clients.
//!
//! # Overview
//!
//! One task serves one connection. It reads requests, answers reads at once from this node's state, and
//! proposes writes without waiting for earlier ones ([`lock_node::Node::submit`]). Replies are sent in the
//! order of the requests, and reads behind a write wait for it. So a client that sends requests without
//! waiting for replies is served as fast as the log takes its writes, and gets ZooKeeper's guarantees:
//!
//! - Requests of one client are applied in the order in which it sent them, or its connection ends. The state
//!   machine enforces this by turns ([`znode_store::Turn`]): even across leader changes no later request is
//!   applied before an earlier one, and no request of an older connection is applied after one of a newer
//!   connection.
//! - A notification precedes every reply that shows the change.
//! - A client never sees an older state than before, on any node: a node that is behind a client does not
//!   serve it.
//! - A ping is answered when the leader has confirmed the session's heartbeat. So a node without a quorum
//!   answers no pings, and ends its connections before the sessions expire.
//!
//! # Outside the scope
//!
//! The meaning of the requests is part of the state machine, and their encoding is part of `zk_wire`. This
//! crate has no HTTP.

mod config;
mod four_letter_word;
mod protection;
mod serve;
mod front;
mod handshake;
mod socket;
mod connection;
mod ensemble;
mod session_keepalive;
mod outstanding;
mod request_metrics;
mod auth;
pub mod reads;
pub mod trace;
pub mod translate;
mod four_letter_words;

pub use config::{LARGE_REQUEST_BYTES, ZkConfig};
pub use four_letter_word::{FourLetterWord, NoSuchWord};
pub use front::{Counts, Front, Ports};
pub use protection::Protection;
pub use serve::serve;
