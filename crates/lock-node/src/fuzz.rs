//! Exports for fuzz targets (`tools/fuzz`): the decoders of bytes that another node has sent or a disk has stored. The module is not part of the
//! API, and has no logic of its own.

pub use raft_node::fuzz::*;

pub use crate::envelope::{Envelope, Origin};

/// Restores the state from a snapshot file.
pub fn restore(file: &raft_log::SnapshotFile) -> std::io::Result<znode_store::Store> {
    let mut reader = file.read()?;
    crate::replica::restore::restore(Box::new(move || Ok(reader.next_part()?)))
}
