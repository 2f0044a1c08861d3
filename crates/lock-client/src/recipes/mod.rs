//! Recipes on top of locks and znodes, each a few lines over the public API. A program may copy one and change it.
//!
//! A wait reads first, and then watches from the log position of that read, so it misses no change. Nothing here polls, but for observers of
//! an election whose lock is closed for a time.

mod barrier;
mod counter;
mod double_barrier;
pub mod election;
mod latch;

use crate::error::{Code, Error};
use crate::znodes::Znode;

pub use barrier::Barrier;
pub use counter::Counter;
pub use double_barrier::{DoubleBarrier, Entered};
pub use election::{Candidate, Election, Leadership, Observer};
pub use latch::CountdownLatch;

/// Error of a recipe that counts.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CountError {
    /// A call failed.
    #[error(transparent)]
    Call(#[from] Error),
    /// The znode has other data than a number.
    #[error("the znode {0} does not hold a number")]
    NotANumber(String),
    /// The number would not fit into 64 bits.
    #[error("the number in the znode {0} cannot become any larger or smaller")]
    Overflow(String),
}

/// Reads the number in a znode.
fn number<T: std::str::FromStr>(path: &str, znode: &Znode) -> Result<T, CountError> {
    let text = znode.text().and_then(|text| text.parse().ok());
    text.ok_or_else(|| CountError::NotANumber(path.to_owned()))
}

/// Ignores the error that another client has done the same.
fn done_or(code: Code, outcome: Result<(), Error>) -> Result<(), Error> {
    match outcome {
        Err(error) if error.is(code) => Ok(()),
        other => other,
    }
}
