//! Whether a history may have happened.
//!
//! A test against a cluster records what each client called, when, and what came back; and asks here whether a correct
//! lock server could have answered so. Nothing here calls anybody, knows the time, or knows what was tested: histories come
//! in, a [`Verdict`] with its reasons comes out.
//!
//! # The words
//!
//! - A [`Call`] is one request and what its client knows of it. Its [`Outcome`] is an answer, a certain failure, or unknown: a
//!   call that nobody answered may take effect at any time after it was sent, or never. To take it for a failure would call
//!   correct servers wrong; to take it for a success, too.
//! - Times are [`Nanos`] on one clock of the machine on which all clients run. *Positions* are the log's.
//! - A verdict is *valid*, *violated* with one line for each contradiction, or *undecided*. Only the first is a pass: a
//!   checker that gave up, or had nothing to look at, has shown nothing.
//!
//! # The checkers
//!
//! | checker | looks at | cannot see |
//! |---|---|---|
//! | [`linearizable`] with [`register`], [`lock_model`] or [`access`] | calls to one thing at a time: is there an order that explains all answers? | what no answer tells of; more than a few hundred calls at once |
//! | [`holds`] | who held which lock, by the servers' own account: exclusion, permits, tokens, order of arrival | what clients believed; what the servers have forgotten (undecided) |
//! | [`client_view`] | who believed to hold which lock | beliefs of clients that record nothing while they are paused |
//! | [`fenced`] | writes to something outside of the cluster, made under a lock | |
//! | [`set`], [`unique_ids`], [`counter`] | data that only grows: linear in time, for long runs | orders that leave no trace in it |
//! | [`exactly_once`] | requests that were sent again under their id | ids that were forgotten as they should be |
//! | [`sessions`] | how long sessions and their ephemeral znodes live | ends between two looks |
//! | [`watches`] | what was told of changes, and when, on each connection | changes of which nobody knows the position |
//!
//! All of them are exact in one direction: what they call violated cannot be the work of a correct server. In the other
//! they see what they are shown.
//!
//! ```
//! use lockgate_check::register::{self, Input, Output, Register};
//! use lockgate_check::{Call, Outcome, Verdict};
//!
//! let call = |client, invoked, returned, input, outcome| Call { client, invoked, returned, input, outcome };
//! let new = Register { value: 0, version: 0 };
//! // The first write is answered, the second one is not. Whoever reads later may see either, but the old value no more.
//! let mut history = vec![
//!     ("r", call(1, 0, 10, Input::Write(7), Outcome::Ok(Output::Written { version: 1 }))),
//!     ("r", call(2, 20, 30, Input::Write(8), Outcome::Unknown)),
//!     ("r", call(3, 40, 50, Input::Read, Outcome::Ok(Output::Is { value: 7, version: 1 }))),
//! ];
//! assert_eq!(register::check(&new, &history), Verdict::Valid);
//! history.push(("r", call(3, 60, 70, Input::Read, Outcome::Ok(Output::Is { value: 0, version: 0 }))));
//! assert!(matches!(register::check(&new, &history), Verdict::Violated(_)));
//! ```

pub mod history;

pub mod access;
pub mod linearizable;
pub mod lock_model;
pub mod register;

pub mod client_view;
pub mod fenced;
pub mod holds;

pub mod counter;
pub mod set;
pub mod unique_ids;

pub mod exactly_once;
pub mod sessions;
pub mod watches;

#[cfg(test)]
mod testing;
mod verdict;

pub use history::{Call, ClientId, Nanos, Outcome};
pub use verdict::Verdict;
