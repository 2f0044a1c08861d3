//! Nodes as front ends see them: whole nodes with their disks and sockets, in one process.
// A test that cannot go on may say so shortly.
#![allow(clippy::unwrap_used)]

mod backup;
mod cluster;
mod disk_full;
mod failover;
mod limits;
mod lock_queue;
mod log_bounds;
mod membership;
mod observers;
mod power;
mod sessions;
mod slow_disk;
mod snapshots;
mod strangers;
mod troubled_disk;
mod versions;
mod watches;
