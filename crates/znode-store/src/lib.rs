//! Lockgate's state machine: a tree of znodes with sessions and locks, as one pure function.
//!
//! A lock server is `apply(state, command) -> (reply, events)` with a network around it. This crate is that function. Every replica applies
//! the same commands in the same order, and reaches the same state with the same replies and events. A replica adds only the delivery of
//! events to its own clients.
//!
//! # Vocabulary
//!
//! | word | meaning |
//! |---|---|
//! | [`Store`] | the whole state |
//! | znode | a node of the tree: a [path](ZPath), some [data](Data), a [`Stat`], perhaps children |
//! | [`Zxid`] | a position: every command takes the next one, also a refused one |
//! | session | a live client; owns the ephemeral znodes that it created |
//! | [`Request`] | a [`Command`] with a session and an optional id, by which a repetition is recognised |
//! | [`Reply`], [`Refusal`] | outcome of a command; a refused one changes nothing |
//! | [`Event`] | a change, for watches and waiting callers |
//! | [`Right`], [`PathGrant`], [`Token`] | access policies of a secured state |
//! | [`NamespaceName`], [`Quotas`] | tenant by the first component of a path, and the quotas that bound its usage |
//! | [`Acl`], [`Identities`] | access control list of a znode; identities that a caller has proven |
//! | [`View`] | the state as one caller may see it |
//! | lock, contender | the znode `/locks/NAME`, and its ephemeral sequential children |
//! | holder | a contender that holds the lock; in the API, the name of its znode |
//! | fencing token | the zxid of the contender's creation |
//!
//! # Guarantees
//!
//! - **Determinism.** The effect of [`Store::apply`] follows from the state, the request and the [`EntryContext`] alone. There is no clock,
//!   no randomness, no I/O, no logging and no panic that a request could cause. [`Store::digest`] compares replicas.
//! - **ZooKeeper's tree.** These are as in ZooKeeper 3.8, so that its clients and its recipes mean the same here: versions, `cversion`,
//!   `pzxid`, ten-digit sequence numbers from the parent's counter of creations, no children below ephemeral znodes, containers and TTL
//!   nodes, access control lists, quotas, the precedence of errors, the order of events. Differences: a sequence counter does not overflow
//!   into negative numbers but is refused beyond [`MAX_SEQUENCE`]; zxids do not carry an epoch; docs/reference/zookeeper-differences.md lists the
//!   others.
//! - **Guarded writes.** [`Op::Held`] makes a transaction fail unless its session holds a lock, at the very position at which the
//!   transaction is applied.
//! - **All or nothing.** A refused command leaves no trace but its zxid, and a [`Command::Multi`] is one command.
//! - **Exactly once.** A repeated request with a [`RequestId`] gets the outcome of the first one, within the bounds of
//!   [`MAX_REMEMBERED_REQUESTS`] and the life of its session.
//! - **Locks are fair.** In order of arrival, the longest prefix of compatible contenders holds the lock. No contender is overtaken, and
//!   each grant has exactly one event. Of two conflicting grants the later one has the larger fencing token, also if the lock was deleted
//!   and created again in between.
//! - **Snapshots do not block.** [`Store::begin_snapshot`] fixes a point in time; [`Store::next_snapshot_part`] reads it while commands are
//!   applied. A [`Restorer`] builds a state with the same digest from the parts, or returns what is wrong with them.
//! - **Cost.** A change costs the depth of its path and not the number of siblings; the end of a session costs its ephemeral znodes; a
//!   release costs the grants that it allows.
//!
//! # Example
//!
//! Two sessions request the same lock, and the holder expires.
//!
//! ```
//! use znode_store::*;
//!
//! let mut store = Store::new();
//! let mut events = Vec::new();
//! let entry = EntryContext { time_ms: 1_700_000_000_000, term: 1 };
//!
//! // The proposer of a command draws ids, passwords and names: apply has no randomness.
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
//! // Session 1 sent no heartbeat to the leader of the entry's term for its timeout.
//! let command = Command::ExpireSessions { sessions: vec![SessionId(1)], term: 1, as_of: store.zxid() };
//! events.clear();
//! let applied = store.apply(&entry, Request::anonymous(command), &mut events);
//! assert_eq!(applied.outcome, Ok(Reply::SessionsExpired(1)));
//!
//! // Its contender is removed, and the same command grants the lock to the next one.
//! let grant = events.iter().find_map(|event| match event {
//!     Event::Granted { session, grant } if *session == SessionId(2) => Some(grant),
//!     _ => None,
//! });
//! assert_eq!(grant.unwrap().fencing_token, Zxid(4));
//! ```
//!
//! # Boundaries
//!
//! The crate does not know:
//!
//! - Time. Entries contain the leader's time; the store only prevents a step back. The leader decides whether a session has missed its
//!   heartbeats, and front ends how long a caller waits. Commands report both decisions.
//! - Watches and waiting callers. They are on the node that their client is connected to, and read [`Event`]s.
//! - Encodings. Values are `Serialize`, and the crate does not know which encoding is used.
//! - HTTP, ZooKeeper's protocol, Raft, tasks, files.
//!
//! # Layers
//!
//! A module depends only on modules in lower layers. `tools/check/tests/layers` reads the `use` lines and fails otherwise.
//!
//! | layer | modules | depends on |
//! |---|---|---|
//! | 7 | `restore_as_new_cluster`, `snapshot` (`take`, `restore`) | all below |
//! | 6 | `apply`, the one decision over every command, which alone changes several owners; beside it `read`, the queries | `store` and all below |
//! | 5 | `store`: the four owners together | `snapshot::builder` and all below |
//! | 4 | `snapshot` (`part`, `builder`): a snapshot being taken | the owners |
//! | 3 | the owners `tree`, `sessions`, `locks`, `access`, each with methods of its own | `model`; `sessions` also the index of a node in `tree` |
//! | 2 | `model`: commands, replies, events, ids, paths, names, limits, data | `stable_hash` |
//! | 1 | `stable_hash` | nothing |
//!
//! `apply` has layers of its own, which its page lists. tests/scripts states the rules one by one.
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
pub use access::visibility::Visibility;
pub use apply::context::{
    EntryWork, MAX_DESCENDANTS, MAX_GRANTED_AT_ONCE, MAX_OPERATIONS, MAX_REMOVED_AT_ONCE,
};
pub use fault_injection::planted;
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
pub use model::address::*;
pub use model::command::*;
pub use model::contender::MAX_RELEASED;
pub use model::data::*;
pub use model::digits::MAX_SEQUENCE;
pub use model::entry::*;
pub use model::event::*;
pub use model::identity::*;
pub use model::ids::*;
pub use model::limits::Limits;
pub use model::lock::*;
pub use model::mirrored::*;
pub use model::namespace::*;
pub use model::path::*;
pub use model::refusal::*;
pub use model::reply::*;
pub use model::session::*;
pub use model::stat::*;
pub use read::growth::MAX_REPLACED_BYTES;
pub use read::mirror_page::MirroredZnode;
pub use read::namespaces::NamespacePage;
pub use read::pages::{EphemeralPage, GraphCursor, LockPage, MAX_LOOKED_AT, SessionPage};
pub use read::{Page, View};
pub use restore_as_new_cluster::{LAST_MOVED_POSITION, TooFar};
pub use sessions::MAX_ENDED_SESSIONS;
pub use sessions::request_cache::{MAX_REMEMBERED_REQUESTS, MAX_SESSIONLESS_REQUESTS};
pub use snapshot::part::SnapshotPart;
pub use snapshot::restore::{Restorer, SnapshotError};
pub use store::{DIGEST_VERSION, MAX_SWEPT, Store};
