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
//! | `table.rs` | all queues; follows the tree |
//! | `apply.rs` | acquire, release, withdraw, break |
//! | `settle.rs` | what follows when a contender goes: others are let in |
//! | `found.rs`, `view.rs` | looking at contenders and locks |
//!
//! Nothing here waits, and nothing knows the time but what commands tell. How long a caller waits, and what becomes of
//! callers that go away, is decided where callers are; here it arrives as `withdraw`.

mod apply;
mod contender;
mod found;
mod name;
mod queue;
mod rule;
mod settle;
mod table;
mod view;

use alloc::format;

pub use apply::{
    MAX_ADDRESS_BYTES, MAX_CONTENDERS, MAX_HOLDS, MAX_NAMED_HOLDERS, MAX_NOTE_BYTES, MAX_OWNER_BYTES,
};
pub use contender::Claim;
pub use rule::holders as holders_by_rule;
pub use view::{ContenderView, LockSummary, LockView, Standing};

pub(crate) use settle::EndedContender;
pub(crate) use table::LockTable;

use crate::path::ZPath;
use crate::reply::Refusal;
use crate::write::lock_of_child;

/// Whether an ephemeral node at `path` would pass for a contender that the lock protocol made. Nobody else creates
/// such nodes or writes to them: their data says how many permits they hold and which calls they stand for, and who
/// could forge that could hold more than there is. Anybody may delete them, which ends the contender.
pub(crate) fn is_reserved(path: &ZPath) -> bool {
    lock_of_child(path).is_some() && name::recognise(path.name()).is_some_and(|name| name.ours)
}

/// The refusal of what [`is_reserved`] forbids.
pub(crate) fn written_by_locks_alone(path: &ZPath) -> Refusal {
    Refusal::BadPath(format!(
        "{path} would be a contender that only the lock protocol creates and writes"
    ))
}
