//! The door of a front end: who of those that call is let in, and how those inside take turns. It knows nothing of what is
//! spoken behind it, nor of TLS: a connection is whatever the caller of [`serve`] makes of a socket.
//!
//! Two things are decided here, the same for every protocol:
//!
//! - **How many are let in**, in all and of one address ([`Bounds`]). Who finds no place is told so at once and can go to
//!   another node; waiting in the listener's backlog it would learn nothing until its own patience ends. For an address of
//!   IPv6 counts its network of 64 bits, for whoever has one address of it has all.
//! - **Whose turn it is.** tokio polls what can go on first in, first out. If each connection were a task of its own, a task of
//!   Raft would stand behind all connections at which something has come, and again at each of its steps: with some thousand
//!   busy clients that alone is longer than an election. So the connections of a door share a task for each thread of the
//!   runtime (`turns.rs`), which does a bounded piece of work when it is its turn, and stands in the queue again like everybody
//!   else. However many clients there are, what the node does for itself waits for one such piece for each door.
//!
//! What is absent: no rate of new connections is bounded, as refusing one costs hardly more than accepting it; and nothing is
//! said to those who speak TLS and are not let in, because that would take a handshake.

mod accept;
mod places;
mod turns;

pub use accept::{Door, serve};
pub use places::Bounds;
