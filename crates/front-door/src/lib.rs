//! The door of a front end: who of those that call is let in. It knows nothing of what is spoken behind it, nor of TLS: a
//! connection is whatever the caller of [`serve`] makes of a socket.
//!
//! The decisions are the same for every protocol. A door bounds how many callers are let in, in all and of one address ([`Bounds`]).
//! It tells a caller that finds no place so at once, and the caller can go to another node; in the listener's backlog the caller would
//! learn nothing until its own patience ends. Callers are listened to in turn ([`Socket`]), so that other work of the node goes on however
//! many speak at once. [`LogLimit`] bounds the log lines about callers that are not let in. An address of IPv6 counts as its network of 64
//! bits, because whoever has one address of it has all.
//! What is absent: no rate of new connections is bounded, as refusing one costs hardly more than accepting it; and nothing is
//! said to those who speak TLS and are not let in, because that would take a handshake.

mod accept;
mod log_limit;
mod meter;
mod places;
mod turns;

pub use accept::{Door, serve};
pub use log_limit::{LogLimit, abridged};
pub use meter::{DoorCounts, DoorMeter};
pub use places::{Bounds, LiveBounds, Places, subscriber};
pub use turns::{Receiver, Socket, Waited};
