//! The door for those who count instructions (`tools/hot-paths`): names of what a command goes through on its way into the
//! log and out of it. It is no part of the API, and nothing here does anything beside calling what has these names.

pub use raft_node::counted::*;

pub use crate::envelope::{Envelope, Origin};
