//! Who held which lock, from when to when, and how it ended: one node's index of what has gone by.
//!
//! # The idea
//!
//! The state machine knows who holds a lock now and forgets who did. Whoever applies its commands tells this crate of
//! each hold's beginning and end ([`Index::began`], [`Index::ended`]); it keeps the newest of them, in a ring on the disk.
//!
//! # Words
//!
//! - A **hold** is one contender's time with its lock, re-entries and all. Its name is lock, token and holder.
//! - A **record** is a hold that is over, with its [`End`].
//! - An **open** hold has begun and not ended. It is kept so that it can be closed if its end is missed.
//! - What lies between two positions of which the index knows nothing is a [`Gap`].
//!
//! # Guarantees
//!
//! - **Telling twice is telling once.** A node applies a part of its log again after a restart, and tells again.
//! - **The same on all nodes.** A record with a known end is made of what the state machine said, of which all replicas say
//!   the same.
//! - **Bounded.** At most [`Bounds::records`] records, none older than [`Bounds::max_age`], at most as many open holds, at
//!   most [`MAX_GAPS`] gaps.
//! - **What is missing is told.** Whoever asks learns since when there are records and where there are gaps.
//! - **It fails alone.** Damage and a full disk are errors ([`IndexError`]); so is a panic of the library below. After one
//!   the index is of no more use, and can be opened again ([`Index::open`]) or made anew ([`set_aside`]).
//!
//! # What is not here
//!
//! Raft, HTTP, threads, a clock: whoever tells says when it was. Nor durability: the index is on the disk some time after
//! the end that it tells of, and a loss of power may take any of it. Nothing may ever depend on it.
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
mod contents;
#[cfg(feature = "index")]
mod index;
#[cfg(not(feature = "index"))]
#[path = "absent.rs"]
mod index;

mod error;

pub use bounds::{Bounds, MAX_GAPS};
pub use error::{IndexError, contained, contains_this_panic, set_aside};
pub use index::Index;
pub use record::{End, Gap, Page, Position, Record};
