//! The protocol, held against real nodes over real connections, by a client that can misbehave.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on may say so shortly, also in its helpers"
)]

mod client;
mod cluster;

mod handshake;
mod load;
mod order;
mod quorum;
mod refusals;
mod sessions;
mod tls;
mod watches;
mod words;
