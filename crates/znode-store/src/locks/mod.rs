//! Locks: who holds one, and the protocol by which that changes.
//!
//! A lock is a znode below [`LOCK_ROOT`](crate::LOCK_ROOT). Its contenders are its ephemeral children whose names end
//! in a sequence number, whoever created them: a call of `acquire`, Curator, kazoo. In order of arrival the longest
//! prefix of contenders that get along with each other holds the lock (`rule.rs`), the others wait; that is all. No
//! contender is overtaken, and what was granted is not taken back by the rule.
//!
//! | file | what it says |
//! |---|---|
//! | `rule.rs` | who holds a lock, as a function of the whole list: the specification |
//! | `queue.rs` | the same, step by step |
//! | `name.rs`, `contender.rs` | what a znode's name and data say about its contender |
//! | `text.rs` | how that is written |
//! | `memo.rs` | the same of those that were written lately, without reading it |
//! | `table.rs` | all queues; follows the tree |
//! | `state.rs` | what holds for some locks beside their queues: terms, closed for a while |
//! | `apply.rs` | acquire, release, withdraw, break |
//! | `modes.rs` | downgrade, upgrade; which token an upgrade has |
//! | `many.rs` | several locks by one call |
//! | `deadlock.rs` | who waits for whom |
//! | `configure.rs`, `revoke.rs` | what operators do: limits, draining; asking holders to give up |
//! | `settle.rs` | what follows when a contender goes: others are let in |
//! | `prospect.rs` | what an acquire can expect, for whoever decides when it is carried out |
//! | `found.rs`, `view.rs` | looking at contenders and locks |
//!
//! Nothing here waits, and nothing knows the time but what commands tell. How long a caller waits, and what becomes of
//! callers that go away, is decided where callers are; here it arrives as `withdraw`.

pub(crate) mod contender;
pub(crate) mod deadlock;
pub(crate) mod json;
pub(crate) mod memo;
pub(crate) mod name;
pub(crate) mod queue;
pub(crate) mod rule;
pub(crate) mod state;
pub(crate) mod table;

use alloc::format;

use crate::apply::write::lock_of_child;
use crate::model::path::{LockName, ZPath};
use crate::model::reply::Refusal;

/// Whether an ephemeral node at `path` would pass for a contender that the lock protocol made. Nobody else creates
/// such nodes or writes to them: their data says how many permits they hold and which calls they stand for, and who
/// could forge that could hold more than there is. Anybody may delete them, which ends the contender.
pub(crate) fn is_reserved(path: &ZPath) -> bool {
    lock_of_child(path).is_some() && name::recognise(path.name()).is_some_and(|name| name.ours)
}

/// The lock that a node at `path` is a contender of, if it is ephemeral: by its place and its name.
pub fn lock_of_contender(path: &ZPath) -> Option<LockName> {
    name::recognise(path.name())?;
    lock_of_child(path)
}

/// The refusal of what [`is_reserved`] forbids.
pub(crate) fn written_by_locks_alone(path: &ZPath) -> Refusal {
    Refusal::BadPath(format!(
        "{path} would be a contender that only the lock protocol creates and writes"
    ))
}
