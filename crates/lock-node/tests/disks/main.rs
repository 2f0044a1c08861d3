//! Writes over minutes: the bounds of the log, disks that fill up, and power cuts of all nodes at once.
// Tests may unwrap.
#![allow(clippy::unwrap_used)]

#[path = "../node/cluster.rs"]
#[allow(dead_code, reason = "these tests need a part of what the tests of nodes need")]
mod cluster;
mod disk_full;
mod log_bounds;
mod power;
#[path = "../node/troubled_disk.rs"]
#[allow(dead_code, reason = "these tests need a part of what the tests of nodes need")]
mod troubled_disk;
