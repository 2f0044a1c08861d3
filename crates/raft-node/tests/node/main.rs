//! Nodes as front ends see them: whole nodes with their disks and sockets, in one process.
// A test that cannot go on may say so shortly.
#![allow(clippy::unwrap_used)]

mod backup;
mod cluster;
mod failover;
mod limits;
mod power;
mod sessions;
mod snapshots;
mod watches;
