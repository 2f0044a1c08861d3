//! Lockgate's state machine: skeleton, see the modules.
#![no_std]
extern crate alloc;

pub mod command;
pub mod event;
pub mod ids;
pub mod path;
pub mod reply;
pub mod stat;

mod apply;
mod lock;
mod remembered;
mod sessions;
mod show;
mod snapshot;
mod stable_hash;
mod store;
mod tree;
mod write;

pub use apply::EntryContext;
pub use command::*;
pub use event::*;
pub use ids::*;
pub use lock::*;
pub use path::*;
pub use remembered::{MAX_REMEMBERED_REQUESTS, MAX_SESSIONLESS_REQUESTS};
pub use reply::*;
pub use sessions::{MAX_ENDED_SESSIONS, SessionFate, SessionView};
pub use snapshot::{Restorer, SnapshotError, SnapshotPart};
pub use stat::*;
pub use store::{MAX_SWEPT_CONTAINERS, Store};
pub use write::MAX_SEQUENCE;
