//! Whole clusters under every load and attack of `lockgate bench`, and on disks that fill up, hang or lose
//! power. Each test takes ten seconds of CPU time or more, so they are not among the product's tests.
//!
//! LOCKGATE_TEST_ROUNDS multiplies the number of rounds.

// clippy's exception for tests does not reach their helpers.
#![allow(clippy::unwrap_used)]

mod attacks;
mod disk_full;
mod ext4_cuts;
mod hanging_disk;
#[path = "../../../../crates/lockgate/tests/cluster/harness.rs"]
#[allow(dead_code, reason = "these tests need a part of what the cluster tests need")]
mod harness;
mod loads;
mod power_loss;
mod small_disks;
mod zookeeper_load;

/// The program under test.
pub const LOCKGATE: &str = env!("CARGO_BIN_EXE_lockgate-with-faults");
