//! Lockgate's replicated node (skeleton).

pub mod config;
pub mod error;
pub mod node;
pub mod status;

pub use config::*;
pub use error::*;
pub use node::*;
pub use status::*;
pub use znode_store;
