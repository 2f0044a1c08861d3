//! The targets that read a node's own files: `log`, where any bytes are its identity and the segments of its log, and `rot`,
//! where files that a node has written are damaged.
//!
//! | target | must hold |
//! |---|---|
//! | [`files::run`] | the directory is refused as damaged or somebody else's, or it is a log: without holes, the same when it is opened again, and it goes on |
//! | [`rot::run`] | it is refused, or holds what was written up to some moment, and nothing that was not |

pub mod files;
pub mod rot;

mod directory;
