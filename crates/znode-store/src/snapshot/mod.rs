//! Point-in-time snapshots, in parts, without a pause of the apply loop.
//!
//! [`begin_snapshot`](crate::Store::begin_snapshot) fixes the position. From there on
//! [`next_snapshot_part`](crate::Store::next_snapshot_part) visits the slots of the slab in order, while commands change the tree. A node that
//! changes before its visit is copied first (`tree/capture.rs`). So a snapshot costs memory for the nodes that change meanwhile, and a part costs
//! the time of its budget.
//!
//! This module does not know bytes or files: [`SnapshotPart`](crate::SnapshotPart) is `Serialize`, and the component that writes it checks what it
//! reads. A [`Restorer`](crate::Restorer) checks everything all the same.
//!
//! The builder depends on the four parts of the state, but not on the [`Store`](crate::Store), which contains it.

pub(crate) mod builder;
pub(crate) mod part;
pub(crate) mod restore;
mod take;
