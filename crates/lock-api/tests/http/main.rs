//! The HTTP contract, held against a real node with one member, over real connections.
//!
//! Every module is one family of routes; what is common to all of them is in `conventions`, and what is below
//! them, the accept loop, in `server`. Every answer is held against the published document, too, by `contract`.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on may say so shortly, also in its helpers"
)]

mod contract;
mod stream;
mod support;

mod access;
mod audit;
mod acls;
mod answers;
mod cluster;
mod conventions;
mod dashboard;
mod events;
mod golden;
mod event_feed;
mod limits;
mod load_shedding;
mod locks;
mod matrix;
mod modes;
mod openapi;
mod origin;
mod race;
mod reads;
mod server;
mod sessions;
mod snapshot;
mod txn;
mod watch;
mod znodes;
