//! Bounds in seconds, tested on whole clusters from outside. These tests need a machine without other load,
//! so only `.ci/full` runs them. Beside other clusters on the same cores, split votes delay elections, and
//! the bounds fail for reasons outside of the nodes.
//!
//! LOCKGATE_TEST_ROUNDS multiplies the number of rounds.

// clippy's exception for tests does not reach their helpers.
#![allow(clippy::unwrap_used)]

#[path = "../../../../crates/lockgate/tests/cluster/harness.rs"]
#[allow(dead_code, reason = "these tests need a part of what the cluster tests need")]
mod harness;
mod membership;

/// The program under test.
pub const LOCKGATE: &str = env!("CARGO_BIN_EXE_lockgate-with-faults");
