//! Lockgate's state machine: skeleton, see the modules.
#![no_std]
extern crate alloc;

pub mod command;
pub mod event;
pub mod ids;
pub mod path;
pub mod reply;
pub mod stat;

pub use command::*;
pub use event::*;
pub use ids::*;
pub use path::*;
pub use reply::*;
pub use stat::*;

/// How many contenders one lock may have.
pub const MAX_CONTENDERS: usize = 10_000;
/// How often one owner may enter a lock.
pub const MAX_HOLDS: usize = 1_000;

/// The state (skeleton).
pub struct Store;
