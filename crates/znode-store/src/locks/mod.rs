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
pub(crate) mod hold;
pub(crate) mod json;

pub(crate) mod memo;
pub(crate) mod name;
pub(crate) mod plan;

pub(crate) mod queue;
pub(crate) mod rule;
pub(crate) mod state;
pub(crate) mod table;
pub(crate) mod view;
