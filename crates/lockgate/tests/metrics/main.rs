//! Metrics of nodes: they match the documentation, callers cannot add series, and dashboards and alerts use
//! no others. `tools/system-tests` makes each alert fire.

// clippy's exception for tests does not reach their helpers.
#![allow(clippy::unwrap_used)]

#[path = "../cluster/harness.rs"]
#[allow(dead_code, reason = "other tests need more of it")]
mod harness;

mod cardinality;
mod dashboard;
mod documented;
mod project;
#[allow(dead_code, reason = "other tests need more of it")]
mod rules;
mod scrape;
mod slow;
mod traces;
mod zookeeper;

/// The program under test.
pub const LOCKGATE: &str = env!("CARGO_BIN_EXE_lockgate");
