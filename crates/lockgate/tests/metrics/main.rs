//! What nodes measure: that it is what the documentation says, that callers cannot make it more, that dashboards and alerts speak
//! of nothing else, and that each alert fires when what it is for happens.
//!
//! The alerts are evaluated by a real Prometheus, the Debian package `prometheus`. Where it is missing that is said, and those
//! tests pass; with LOCKGATE_PROMETHEUS=required they fail.

// clippy's exception for tests does not reach their helpers.
#![allow(clippy::unwrap_used)]

#[path = "../cluster/harness.rs"]
#[allow(dead_code, reason = "other tests need more of it")]
mod harness;

#[path = "../../../raft-node/tests/node/troubled_disk.rs"]
#[allow(dead_code, reason = "other tests need more of it")]
mod troubled_disk;

mod alerts;
mod cardinality;
mod dashboard;
mod documented;
mod scrape;
mod slow;
mod traces;
mod zookeeper;
