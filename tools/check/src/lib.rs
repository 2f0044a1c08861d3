//! Checkers that decide whether a recorded history is possible for a correct lock server.
//!
//! A test against a cluster records each client's calls, their times and their answers, and passes
//! them to a checker. No checker calls a server, reads a clock or knows the test: its input is a
//! history, its output a [`Verdict`] with reasons.
//!
//! # Vocabulary
//!
//! - A [`Call`] is one request and what its client knows of it. Its [`Outcome`] is an answer, a
//!   certain failure, or unknown. A request without an answer may take effect at any time after it
//!   was sent, or never. A checker that counted it as a failure, or as a success, would reject
//!   histories of correct servers.
//! - Times are [`Nanos`] on one clock of the machine on which all clients run. *Positions* are
//!   those of the log.
//! - A verdict is *valid*, *violated* with one line for each contradiction, or *undecided*. Only
//!   *valid* is a pass: a checker that gave up, or had nothing to check, has shown nothing.
//!
//! # Checkers
//!
//! | checker | input | blind to |
//! |---|---|---|
//! | [`linearizable`] with [`register`], [`lock_model`] or [`access`] | calls to one object at a time: does some order explain all answers? | effects that no answer shows; more than a few hundred concurrent calls |
//! | [`holds`] | the holders of each lock according to the servers: exclusion, permits, tokens, order of arrival | what clients believed; what the servers have discarded (undecided) |
//! | [`client_view`] | the locks that each client believed it held | beliefs of clients that record nothing while they are paused |
//! | [`fenced`] | writes to a resource outside of the cluster, made under a lock | |
//! | [`set`], [`unique_ids`], [`counter`] | data that only grows: linear in time, for long runs | orders that leave no trace in the data |
//! | [`exactly_once`] | requests that were sent again under their id | ids that the server has discarded as documented |
//! | [`sessions`] | lifetimes of sessions and of their ephemeral znodes | ends between two reads |
//! | [`contenders`] | lives of contenders by lease or session: promised times, bounds of holds, order, reasons of ends | servers that end a contender and tell nobody |
//! | [`watches`] | notifications of changes, and their order on each connection | changes of unknown position |
//!
//! Each checker is sound: a history that it calls violated cannot come from a correct server. It is
//! complete only for what the history contains.
//!
//! ```
//! use lockgate_check::register::{self, Input, Output, Register};
//! use lockgate_check::{Call, Outcome, Verdict};
//!
//! let call = |client, invoked, returned, input, outcome| Call { client, invoked, returned, input, outcome };
//! let new = Register { value: 0, version: 0 };
//! // The first write is answered, the second is not. A later read may return either value, but not the initial one.
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

pub mod contenders;
pub mod exactly_once;
pub mod sessions;
pub mod watches;

#[cfg(test)]
mod testing;
mod verdict;

pub use history::{Call, ClientId, Nanos, Outcome};
pub use verdict::Verdict;
