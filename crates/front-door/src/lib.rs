//! The door of a front end: who of those that call is let in. It knows nothing of what is spoken behind it, nor of TLS: a
//! connection is whatever the caller of [`serve`] makes of a socket.
//!
//! What is decided here is the same for every protocol: how many are let in, in all and of one address ([`Bounds`]). Who finds
//! no place is told so at once and can go to another node; waiting in the listener's backlog it would learn nothing until its
//! own patience ends. What of those that are not let in is logged ([`LogLimit`]). And when they are listened to: in turn ([`Socket`]), so that what the node does beside goes on however
//! many speak at once. For an address of IPv6 counts its network of 64 bits, for whoever has one address of it has all.
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
