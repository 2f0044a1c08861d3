//! Promises in seconds, tested on whole clusters from outside. Such a test needs the machine to itself, so only `.ci/full` runs it. Beside
//! other clusters on the same cores, elections are lost to split votes and the bounds fail for reasons that are not the nodes'.
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
