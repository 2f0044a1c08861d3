//! Lock history of one node: an on-disk index of who held which lock, from when to when, and how each hold
//! ended.
//!
//! # Overview
//!
//! The state machine knows the current holders of a lock and forgets past ones. The node that applies its
//! commands reports the beginning and end of each hold to this crate ([`Index::began`], [`Index::ended`]).
//! The index stores the newest of them in a ring on disk.
//!
//! # Terms
//!
//! - A **hold** is one contender's time as a holder, re-entries included. It is identified by lock, token and
//!   holder.
//! - A **record** is a hold that is over, with its [`End`].
//! - An **open** hold has begun and not ended. It is stored so that it can be closed if its end is missed.
//! - A [`HistoryGap`] is the time between two positions of which the index knows nothing.
//!
//! # Guarantees
//!
//! - **Idempotent events.** After a restart a node applies a part of its log again and reports the same
//!   events again.
//! - **Identical on all nodes.** Records with a known end derive from the state machine's events, which are
//!   identical on all replicas.
//! - **Bounded.** There are at most [`HistoryLimits::records`] records, none older than [`HistoryLimits::max_age`], as many
//!   open holds, and [`MAX_GAPS`] gaps.
//! - **Shared.** If there are too many records, those of the locks with the most are evicted: a program with many short holds evicts its own
//!   records. A lock belongs to one of sixteen shares, by the first part of its name.
//! - **Gaps are reported.** Each page states from when on there are records and where there are gaps.
//! - **Failures are contained.** Damage and a full disk are errors ([`IndexError`]), and so is a panic of the
//!   storage library. After an error the index is unusable, and can be opened again ([`Index::open`]) or
//!   recreated ([`set_aside`]).
//!
//! # Outside the scope
//!
//! The crate has no Raft, no HTTP, no threads and no clock: its caller passes the times. It offers no
//! durability: an event is on disk some time after it happened, and a power failure may lose any part of the
//! index. Nothing else may depend on it.
//!
//! Without the feature `index` (on by default) there is no index: [`Index::open`] fails.

mod bounds;
mod record;

#[cfg(feature = "index")]
mod keys;
#[cfg(feature = "index")]
mod stored;
#[cfg(feature = "index")]
mod chunks;
#[cfg(feature = "index")]
mod ring;
#[cfg(feature = "index")]
mod share;
#[cfg(feature = "index")]
mod contents;
#[cfg(feature = "index")]
mod index;
#[cfg(not(feature = "index"))]
#[path = "absent.rs"]
mod index;

mod error;

pub use bounds::{HistoryLimits, MAX_GAPS};
pub use error::{IndexError, contained, contains_this_panic, set_aside};
pub use index::Index;
pub use record::{End, HistoryGap, HistoryPage, HoldRecord, Position};
