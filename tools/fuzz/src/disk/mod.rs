//! The targets that read a node's own files. In `log`, arbitrary bytes are its identity and the segments of
//! its log; in `rot`, files that a node has written are damaged.
//!
//! | target | property |
//! |---|---|
//! | [`files::run`] | a directory is rejected as damaged or foreign; or it holds a log without holes, which
//! has the same contents when opened again and takes another entry |
//! | [`rot::run`] | the directory is rejected; or it holds exactly the state after one of the node's writes |

pub mod files;
pub mod rot;

mod directory;
