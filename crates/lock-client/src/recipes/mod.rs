//! Recipes: what people build on locks and znodes, each a few lines over the same API that everybody has. They know
//! nothing that a program could not know, so a program may take one as a beginning of its own.
//!
//! Nothing here polls. A wait reads first, and then watches from the position that it has read: no change falls between.

mod barrier;
mod counter;
mod double_barrier;
mod election;
mod latch;

use crate::error::{Code, Error};
use crate::znodes::Znode;

pub use barrier::Barrier;
pub use counter::Counter;
pub use double_barrier::{DoubleBarrier, Entered};
pub use election::{Candidate, Election, Leadership};
pub use latch::CountdownLatch;

/// Why a recipe that counts has no result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CountError {
    /// A call failed.
    #[error(transparent)]
    Call(#[from] Error),
    /// Somebody else has written something into the znode.
    #[error("the znode {0} does not hold a number")]
    NotANumber(String),
    /// The number would not fit into 64 bits.
    #[error("the number in the znode {0} cannot become any larger or smaller")]
    Overflow(String),
}

/// The number in a znode.
fn number<T: std::str::FromStr>(path: &str, znode: &Znode) -> Result<T, CountError> {
    let text = znode.text().and_then(|text| text.parse().ok());
    text.ok_or_else(|| CountError::NotANumber(path.to_owned()))
}

/// What somebody else was faster to do is done.
fn done_or(code: Code, outcome: Result<(), Error>) -> Result<(), Error> {
    match outcome {
        Err(error) if error.is(code) => Ok(()),
        other => other,
    }
}
