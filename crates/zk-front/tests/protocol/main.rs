//! The protocol, held against real nodes over real connections, by a client that can misbehave.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on may say so shortly, also in its helpers"
)]

mod certificates;
mod client;
mod cluster;

mod handshake;
mod letter;
mod load;
mod long_paths;
mod order;
mod quorum;
mod refusals;
mod rights;
mod sessions;
mod tls;
mod two_ports;
mod unsecured;
mod watches;
mod words;
