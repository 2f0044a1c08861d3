//! Lockgate's replicated node (front page in the making).

pub mod config;
pub mod error;
pub mod hub;
pub mod node;
pub mod status;

mod asker;
mod calls;
mod codec;
mod formation;
mod leader;
mod machine;
mod peers;
mod proposer;
mod replica;
mod sessions;
mod snapshot_file;
pub mod storage;
mod submitter;
mod types;

pub use config::*;
pub use error::*;
pub use hub::{GrantWait, Verdict, WatchEvent, WatchEventKind, WatchKind, Watcher};
pub use node::*;
pub use status::*;
pub use znode_store;
