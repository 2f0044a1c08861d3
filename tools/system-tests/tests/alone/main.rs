//! What is promised in seconds, shown on whole clusters from outside. These tests need the machine for themselves, so only `.ci/full` runs
//! them, one after the other (`--test-threads 1`): among other clusters on the same cores the seconds would say more about the crowd than
//! about the nodes.
//!
//! LOCKGATE_TEST_ROUNDS multiplies the number of rounds.

// clippy's exception for tests does not reach their helpers.
#![allow(clippy::unwrap_used)]

mod failover;
#[path = "../../../../crates/lockgate/tests/cluster/harness.rs"]
#[allow(dead_code, reason = "these tests need a part of what the cluster tests need")]
mod harness;
mod membership;

/// The program under test.
pub const LOCKGATE: &str = env!("CARGO_BIN_EXE_lockgate-with-faults");
