//! Nodes as front ends see them: whole nodes with their disks and sockets, in one process.

mod cluster;
mod failover;
mod sessions;
mod snapshots;
