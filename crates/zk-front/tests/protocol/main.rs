//! Tests of the protocol against real nodes over real connections, with a client that can send anything.

#![allow(
    clippy::unwrap_used,
    reason = "a panic is how a test fails, also in its helpers"
)]

mod certificates;
mod client;
mod cluster;

mod four_letter_words;
mod handshake;
mod compatibility;
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
