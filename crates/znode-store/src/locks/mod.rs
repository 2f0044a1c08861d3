//! Locks: the queues of contenders, and the rule that decides about grants. This module depends on the values of the model, and on no other part of
//! the state. The steps of the protocol, which also change the tree, are in `apply/locks`.
//!
//! A lock is a znode below [`LOCK_ROOT`](crate::LOCK_ROOT). Its contenders are its ephemeral children whose names end in a sequence number,
//! whatever client created them: `acquire`, Curator, kazoo. In order of arrival the longest prefix of compatible contenders holds the lock
//! (`rule.rs`), and the others wait. No contender is overtaken, and the rule never revokes a grant.
//!
//! | file | content |
//! |---|---|
//! | `rule.rs` | the rule as a function of the whole list, which is the specification |
//! | `queue.rs` | the rule, computed incrementally |
//! | `plan.rs` | decision about a call of `acquire` |
//! | `name.rs`, `contender.rs` | names of contenders' znodes; contenders |
//! | `table.rs` | all queues; follows the tree |
//! | `state.rs` | state of some locks besides their queues: settings, lock-delay |
//! | `deadlock.rs` | deadlock detection |
//! | `view.rs` | descriptions of locks and waits |
//!
//! This module never waits, and gets the time only from commands. Front ends decide how long a caller waits, and propose a `withdraw`.

pub(crate) mod contender;
pub(crate) mod deadlock;
pub(crate) mod name;
pub(crate) mod plan;
pub(crate) mod queue;
pub(crate) mod rule;
pub(crate) mod state;
pub(crate) mod table;
pub(crate) mod view;
