//! Tests of the HTTP contract against a real node with one member, over real connections.
//!
//! Every module covers one family of routes. `conventions` covers the rules of all routes, and `server` the
//! accept loop below them. `contract` also compares every answer with the published document.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on may say so shortly, also in its helpers"
)]

mod contract;
mod contract_v1;
mod stream;
mod support;

mod access;
mod audit;
mod acls;
mod batch;
mod answers;
mod cluster;
mod conventions;
mod dashboard;
mod events;
mod golden;
mod event_feed;
mod leases;
mod limits;
mod load_shedding;
mod locks;
mod queued_waits;
mod matrix;
mod modes;
mod namespaces;
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
