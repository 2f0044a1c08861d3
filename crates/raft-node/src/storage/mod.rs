//! What a node keeps on its disk.

pub mod disk;
pub mod error;
pub mod wal;

pub use error::StorageError;
