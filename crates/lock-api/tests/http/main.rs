//! The HTTP contract, held against a real node with one member, over real connections.
//!
//! Every module is one family of routes; what is common to all of them is in `conventions`, and what is below
//! them, the accept loop, in `server`.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on may say so shortly, also in its helpers"
)]

mod stream;
mod support;

mod acls;
mod cluster;
mod conventions;
mod events;
mod golden;
mod limits;
mod locks;
mod modes;
mod reads;
mod server;
mod sessions;
mod snapshot;
mod txn;
mod watch;
mod znodes;
