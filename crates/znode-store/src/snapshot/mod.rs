//! Point-in-time snapshots, in parts, without a pause of the apply loop.
//!
//! [`begin_snapshot`](crate::Store::begin_snapshot) fixes the position. From there on
//! [`next_snapshot_part`](crate::Store::next_snapshot_part) visits the places of the slab in order, while commands go on changing the tree.
//! A node that changes before its visit is copied first (`tree/capture.rs`). So a snapshot costs the memory of what changes meanwhile, and
//! a part costs the time of its budget.
//!
//! Nothing here knows bytes or files: [`SnapshotPart`](crate::SnapshotPart) is `Serialize`, and the component that writes it checks what it
//! reads. A [`Restorer`](crate::Restorer) checks everything all the same.
//!
//! The builder knows the four owners and not the [`Store`](crate::Store), which holds it.

pub(crate) mod builder;
pub(crate) mod part;
pub(crate) mod restore;
mod take;
