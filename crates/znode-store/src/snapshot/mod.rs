//! Point-in-time snapshots, in parts, without stopping the apply.
//!
//! [`begin_snapshot`](crate::Store::begin_snapshot) notes where the state stands. From then on
//! [`next_snapshot_part`](crate::Store::next_snapshot_part) visits the places of the slab one after the other,
//! while commands go on changing the tree: a node that is about to change before it was visited is put aside
//! as it was. So the cost of a snapshot in memory is what changes meanwhile, and the cost of a part in time is
//! its budget.
//!
//! Nothing here knows bytes or files: [`SnapshotPart`](crate::SnapshotPart) is `Serialize`, and whoever writes it checks what it
//! reads. A [`Restorer`](crate::Restorer) believes nothing all the same.

pub(crate) mod builder;
pub(crate) mod part;
pub(crate) mod restore;
mod take;
