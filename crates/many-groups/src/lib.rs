//! A model of many groups: what throughput and what waiting times Lockgate would have if names were spread over several Raft groups,
//! and the groups' leaders over several machines. Nothing of that is built; this tells with figures what it would come to.
//!
//! It is a simulation of queues under a seed. A request waits for a core of its group's leader, then for the group's next entry, the
//! entry for the disk of the leader and for one follower that has it on its own, and its answer for a core again. Nothing else is in it:
//! no election, no lost message, no snapshot. What each step costs is measured at one group of the real program ([`Costs`]), and a test
//! holds what the model says of that one group against what was measured of it. Another holds its queues against the formulas for
//! waiting times that have been known since Erlang, Pollaczek and Khinchine.
//!
//! | word | is |
//! |---|---|
//! | machine | cores and a disk. All logs on a machine share the disk's syncs |
//! | group | a Raft group: one leader and its followers, each on a machine of its own if there are as many |
//! | name | what requests are about. A hash of it says which group it belongs to |
//! | operation | a request that is written: one entry of the log has as many as have come while the one before it was made |
//!
//! ```
//! use many_groups::{Load, Model, Setting};
//!
//! let setting = Setting { groups: 6, machines: 3, load: Load::Closed { clients: 96 }, ..Setting::default() };
//! let outcome = Model::new(setting).run();
//! assert!(outcome.operations_per_second > 10_000.0);
//! ```
//!
//! Left out on purpose: moving a name to another group, and transactions over groups. Both need a protocol that nobody has designed.

pub mod calendar;
pub mod station;
pub mod costs;
pub mod names;
pub mod placement;
pub mod setting;
mod batches;
mod events;
mod model;
mod lost;
pub mod outcome;
pub mod sessions;
pub mod plot;

pub use costs::Costs;
pub use model::Model;
pub use outcome::Outcome;
pub use setting::{Load, Lost, Setting};

/// The model's time, in nanoseconds from its beginning.
pub type Nanos = u64;

/// So many nanoseconds are a second.
pub const SECOND: Nanos = 1_000_000_000;

/// So many nanoseconds are a microsecond.
pub const MICROSECOND: Nanos = 1_000;
