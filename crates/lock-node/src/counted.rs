//! Exports for `tools/hot-paths`, which counts instructions: the steps of a command into the log and out of it. The module is not part of the API,
//! and has no logic of its own.

pub use raft_node::counted::*;

pub use crate::envelope::{Envelope, Origin};
