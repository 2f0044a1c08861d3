//! The door for fuzz targets (`tools/fuzz`): names of what decodes bytes that another node has sent or a disk
//! has kept. It is no part of the API, and nothing here does anything beside calling what has these names.

pub use raft_node::fuzz::*;

pub use crate::envelope::{Envelope, Origin};

/// Returns the state that is in a snapshot file.
pub fn restore(file: &raft_log::SnapshotFile) -> std::io::Result<znode_store::Store> {
    let mut reader = file.read()?;
    crate::replica::restore::restore(Box::new(move || Ok(reader.next_part()?)))
}
