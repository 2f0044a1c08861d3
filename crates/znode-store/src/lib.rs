//! Lockgate's state machine: a tree of znodes with sessions and locks, as one pure function.
//!
//! A lock server is `apply(state, command) -> (reply, events)` with a network around it. This crate is that
//! function. Every replica applies the same commands in the same order and comes to the same state, the same
//! replies and the same events; all that a replica adds is who is told.
//!
//! # Vocabulary
//!
//! | word | meaning |
//! |---|---|
//! | [`Store`] | the state, all of it |
//! | znode | a node of the tree: a [path](ZPath), some [data](Data), a [`Stat`], perhaps children |
//! | [`Zxid`] | a position: every command takes the next one, also a refused one |
//! | session | a client that is alive; owns the ephemeral znodes that it created |
//! | [`Request`] | a [`Command`], on behalf of a session, perhaps with an id by which a repetition is known |
//! | [`Reply`], [`Refusal`] | what came of it; a refusal has changed nothing |
//! | [`Event`] | what it changed, for those who watch and wait |
//! | [`Right`], [`PathGrant`], [`Token`] | what operators allow in a secured state, and by what callers are known |
//! | [`Acl`], [`Identities`] | who may do what to a znode; what a caller has proven to be |
//! | [`View`] | the state as one caller may see it |
//! | lock, contender | the znode `/locks/NAME`, and its ephemeral sequential children |
//! | holder | a contender that holds the lock; its znode's name is what clients call so |
//! | fencing token | the zxid at which the contender came |
//!
//! # Guarantees
//!
//! - **Determinism.** What [`Store::apply`] does follows from the state, the request and the [`EntryContext`]
//!   alone. There is no clock, no randomness, no I/O, no logging and no panic that a request could cause.
//!   [`Store::digest`] compares replicas.
//! - **ZooKeeper's tree.** Versions, `cversion`, `pzxid`, ten-digit sequence numbers from the parent's counter
//!   of creations, no children below ephemeral znodes, containers and TTL nodes, access control lists, quotas, which of
//!   several faults is told, the order of events: as ZooKeeper 3.8 has them, so that its clients and its recipes mean the
//!   same here. Differences: a sequence counter does not overflow into negative numbers but is refused beyond
//!   [`MAX_SEQUENCE`]; zxids do not carry an epoch; and what else docs/zookeeper-differences.md lists.
//! - **Guarded writes.** [`Op::Held`] makes a transaction fail unless its session holds a lock, at the very position at
//!   which the transaction is carried out.
//! - **All or nothing.** A refused command leaves no trace but its zxid, and a [`Command::Multi`] is one command.
//! - **Exactly once.** A request that carries a [`RequestId`] and is sent again is answered as before, within
//!   the bounds of [`MAX_REMEMBERED_REQUESTS`] and the life of its session.
//! - **Locks are fair.** In order of arrival, the longest prefix of contenders that get along with each other
//!   holds the lock; nobody is overtaken, and each grant is told exactly once. Of two conflicting grants the
//!   later one has the larger fencing token, also if the lock was deleted and made anew in between.
//! - **Snapshots do not stop the world.** [`Store::begin_snapshot`] fixes a point in time;
//!   [`Store::next_snapshot_part`] draws it while commands go on. A [`Restorer`] makes a state of the parts
//!   that has the same digest, or says what is wrong with them.
//! - **Cost.** A change costs the depth of its path and not the number of siblings; an ended session costs
//!   its ephemeral znodes; a lock's release costs those that it lets in.
//!
//! # Example
//!
//! Two sessions want the same lock; the one that holds it dies.
//!
//! ```
//! use znode_store::*;
//!
//! let mut store = Store::new();
//! let mut events = Vec::new();
//! let entry = EntryContext { time_ms: 1_700_000_000_000, term: 1 };
//!
//! // Ids, passwords and names are drawn by whoever proposes a command, for apply may not.
//! for id in [1, 2] {
//!     let command = Command::OpenSession {
//!         session: SessionId(id),
//!         password: Password([0; 16]),
//!         timeout_ms: 10_000,
//!         name: "worker".into(),
//!         address: "10.0.0.7".into(),
//!     };
//!     store.apply(&entry, Request::anonymous(command), &mut events);
//! }
//! let acquire = |id, guid| Request {
//!     session: Some(SessionId(id)),
//!     request_id: None,
//!     caller: Identities::none(),
//!     command: Command::Lock(LockCommand::Acquire {
//!         wish: LockWish {
//!             lock: LockName::parse("orders/42").unwrap(),
//!             mode: LockMode::Exclusive,
//!             permits: 1,
//!             owner: "".into(),
//!             reentrant: true,
//!             note: "".into(),
//!             address: "10.0.0.7".into(),
//!             lock_delay_ms: 0,
//!             names: Default::default(),
//!         },
//!         guid,
//!         attempt: AttemptId(id),
//!         wait: true,
//!     }),
//! };
//! let first = store.apply(&entry, acquire(1, 0xaaaa), &mut events).outcome;
//! let second = store.apply(&entry, acquire(2, 0xbbbb), &mut events).outcome;
//! assert!(matches!(first, Ok(Reply::Granted(_))));
//! assert!(matches!(second, Ok(Reply::Queued(Place { ahead: 0, .. }))));
//!
//! // The leader of the entry's term has not heard of session 1 for its timeout.
//! let command = Command::ExpireSessions { sessions: vec![SessionId(1)], term: 1, as_of: store.zxid() };
//! events.clear();
//! let applied = store.apply(&entry, Request::anonymous(command), &mut events);
//! assert_eq!(applied.outcome, Ok(Reply::SessionsExpired(1)));
//!
//! // Its contender goes, and in the same breath the next one holds the lock.
//! let grant = events.iter().find_map(|event| match event {
//!     Event::Granted { session, grant } if *session == SessionId(2) => Some(grant),
//!     _ => None,
//! });
//! assert_eq!(grant.unwrap().fencing_token, Zxid(4));
//! ```
//!
//! # What is absent, on purpose
//!
//! - Time. Commands bring the leader's; the store only sees to it that it never goes back. Whether a session
//!   has missed its heartbeats, how long a caller waits: decided elsewhere, and told here by a command.
//! - Watches, and anybody who waits. They live on the node that their client is connected to, and feed on
//!   [`Event`]s.
//! - Bytes. What is serialized is `Serialize`, and which encoding is used is not known here.
//! - HTTP, ZooKeeper's protocol, Raft, tasks, files.
//!
//! # Where to find what
//!
//! `command`, `reply`, `event` are the boundary; `apply` decides over commands, `create` and `write` over changes of the
//! tree, `acl` and `quota` over whether they may be, `lock/` over locks, `read` over what may be seen; `tree/` is how
//! znodes lie in memory; `sessions`, `remembered` and `snapshot/` are what they say, `anew` makes of a backup the beginning of a new cluster,
//! `mirror` brings the tree of another server. tests/scripts states the rules one by one.
#![no_std]
extern crate alloc;

mod stable_hash;

mod model;

mod access;
mod locks;
mod sessions;
mod tree;

mod store;

mod apply;
mod read;

mod restore_as_new_cluster;
mod snapshot;

pub use access::table::{MAX_CERTIFICATES, MAX_ROLES, MAX_TOKENS};
pub use access::visibility::Sight;
pub use apply::context::{EntryWork, MAX_REMOVED_AT_ONCE};
pub use fault_injection::planted;
pub use locks::contender::MAX_RELEASED;
pub use locks::deadlock::{MAX_DEADLOCK_STEPS, MAX_GRAPH_WAITS, MAX_NAMED_BLOCKERS, MAX_NAMED_PARTIES};
pub use locks::name::lock_of_contender;
pub use locks::rule::{holders as holders_by_rule, holders_after as holders_by_rule_after};
pub use locks::state::{MAX_CONFIGURED_LOCKS, MAX_LOCK_DELAY_MS};
pub use locks::view::*;
pub use model::access::command::*;
pub use model::access::principal::*;
pub use model::access::right::*;
pub use model::access::role::*;
pub use model::access::token::*;
pub use model::acl::*;
pub use model::command::*;
pub use model::data::*;
pub use model::digits::MAX_SEQUENCE;
pub use model::entry::*;
pub use model::event::*;
pub use model::identity::*;
pub use model::ids::*;
pub use model::limits::Limits;
pub use model::lock::*;
pub use model::mirrored::*;
pub use model::path::*;
pub use model::refusal::*;
pub use model::reply::*;
pub use model::session::*;
pub use model::stat::*;
pub use read::growth::MAX_REPLACED_BYTES;
pub use read::mirror_page::Shown;
pub use read::pages::{EphemeralPage, GraphCursor, LockPage, MAX_LOOKED_AT, SessionPage};
pub use read::{Page, View};
pub use restore_as_new_cluster::{LAST_MOVED_POSITION, TooFar};
pub use sessions::MAX_ENDED_SESSIONS;
pub use sessions::request_cache::{MAX_REMEMBERED_REQUESTS, MAX_SESSIONLESS_REQUESTS};
pub use snapshot::part::SnapshotPart;
pub use snapshot::restore::{Restorer, SnapshotError};
pub use store::{DIGEST_VERSION, MAX_SWEPT, Store};
