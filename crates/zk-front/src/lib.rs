//! The front end for clients of ZooKeeper: Curator, kazoo, zkCli and every other one work unmodified, over the same tree,
//! sessions and watches as all other clients.
//!
//! # The idea
//!
//! One task serves one connection. It reads what comes, answers reads at once from this node's state, and sends writes on
//! their way without waiting for those before ([`raft_node::Node::submit`]); their answers go out in the order in which
//! they were asked for, and reads behind a write wait for it. So a client that sends without waiting is served as fast as
//! the log takes its writes, and sees what ZooKeeper promises:
//!
//! - Requests of one client are carried out in the order in which it sends them, or its connection ends. The state
//!   machine sees to it, by turns ([`znode_store::Turn`]): whatever becomes of a leader in between, a later one is never carried
//!   out before an earlier one, and nothing that an older connection had still to say comes after a newer one's.
//! - A notification comes before any answer that shows the change.
//! - What a client has seen it never sees older, on whichever node: a node that is behind a client does not serve it.
//! - A ping is answered when the leader has counted it. So a node that has lost the quorum answers none, and ends its
//!   connections before the sessions' time is over.
//!
//! # What is absent, on purpose
//!
//! What the requests mean: that is the state machine's. What bytes they are: that is `zk_wire`'s. HTTP.

mod config;
mod serve;
mod front;
mod handshake;
mod socket;
mod connection;
mod ensemble;
mod pulse;
mod outstanding;
mod requests;
mod auth;
pub mod reads;
pub mod trace;
pub mod translate;
pub mod words;

pub use config::{LARGE_REQUEST_BYTES, ZkConfig};
pub use front::{Counts, Front, Ports};
pub use serve::{Protection, serve};
