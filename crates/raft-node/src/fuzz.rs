//! The door for fuzz targets (`crates/decoder-fuzz`): names of what decodes bytes that another node has sent or a disk
//! has kept. It is no part of the API, and nothing here does anything.

pub use crate::codec::{BadBytes, CommandBatch, Envelope, Origin, decode, encode};
pub use crate::snapshot_file::restore;
pub use crate::storage::log_entry::{decode_membership, encode_membership};
