//! Names for `tools/hot-paths`, which counts instructions: the steps of a command into the log and out of it. It is not part of the API,
//! and nothing here does anything but call what has these names.

pub use raft_node::counted::*;

pub use crate::envelope::{Envelope, Origin};
