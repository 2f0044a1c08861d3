//! Nodes as front ends see them: whole nodes with their disks and sockets, in one process.
// Tests may unwrap.
#![allow(clippy::unwrap_used)]

mod backup;
#[allow(dead_code, reason = "the tests of disks need the rest")]
mod cluster;
mod failover;
mod fair_queue;
mod limits;
mod lock_queue;
mod membership;
mod observers;
mod rights;
mod rolled_back;
mod sessions;
mod slow_disk;
mod snapshots;
mod strangers;
#[allow(dead_code, reason = "the tests of disks need the rest")]
mod troubled_disk;
mod versions;
mod watches;
