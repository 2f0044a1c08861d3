//! A running node of Lockgate: the state machine of [`znode_store`] made replicated, durable and timely.
//!
//! # The idea
//!
//! A command that any node is handed is replicated by [`raft_node`]; every node applies it to its copy of the state. The caller is answered
//! by **its own node's** apply, so what it reads there afterwards is never older than what it was told.
//!
//! ```text
//!   Node::propose ──► calls ──► raft-node: forwarded to the leader, one entry of many commands, on a quorum's disks
//!        ▲                          │
//!        │                          ▼ every node
//!        └────────── answers ── replica ── events ──► observers: watches, grants, session events, feed, history, metrics
//!                                   │
//!                                   └── sessions: what the leader has heard
//! ```
//!
//! # Words
//!
//! - **zxid**: the position in the history of the tree; one entry carries many commands, each with its own.
//! - **Call**: a proposal of this node that somebody waits for.
//!
//! # Guarantees
//!
//! - What [`Node::propose`] answered is on a quorum's disks, whatever is killed afterwards.
//! - [`ProposeError::Unavailable`] means that nothing was done, and will not be.
//!   [`ProposeError::OutcomeUnknown`] is only answered when a deadline has passed (or a snapshot hides
//!   what happened): a leader that is lost in mid-flight is survived without it, because a proposal of an
//!   earlier term can be sent again as soon as an entry of a later one is applied.
//! - A confirmed heartbeat ([`Node::heartbeat`]) was counted by a node that could prove *afterwards* that it
//!   still led. A session lives at least for its timeout after it was sent.
//! - A session's end is valid only in the term of the leader that proposed it.
//! - A watch that is armed while reading ([`Node::read_and_watch`], [`WatchConnection::look`]) tells of the first
//!   change after what was read; a notice waits for its client before the answer of the command that caused it, and
//!   before anybody can read the change here. A watcher that cannot be told all that happened is told so.
//!
//! # An example
//!
//! ```no_run
//! # use std::collections::BTreeMap;
//! # use lock_node::{MemberAddress, Node, NodeConfig};
//! # use lock_node::znode_store::{Acl, Command, CreateMode, CreatePath, Op, Request};
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let address = MemberAddress { peer: "127.0.0.1:7501".into(), http: "127.0.0.1:7401".into() };
//! let node = Node::start(NodeConfig::new(1, "demo", BTreeMap::from([(1, address)]), "./data")).await?;
//! let command = Command::Write(Op::Create {
//!     path: CreatePath::parse("/greeting", false)?,
//!     data: "hello".into(),
//!     acl: Acl::open(),
//!     mode: CreateMode::Persistent,
//!     parents: false,
//! });
//! let applied = node.propose(Request::anonymous(command)).await?;
//! println!("{} at {}", applied.outcome.is_ok(), applied.zxid);
//! node.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! # What this crate must not know
//!
//! It knows no HTTP and no ZooKeeper protocol: front ends do, and they do not know each other. It knows no openraft and no peer's message:
//! `raft-node` does. What a lock is, and who holds it, is decided by `znode-store` alone.

pub mod config;
pub mod node;
pub mod metrics;
pub mod traces;
mod tuning;
mod slow;
mod subject;

pub mod admission;
mod stall_log;
mod replica;
mod calls;
mod application;
mod watch_connection;
mod session_stream;
mod cluster_events;
mod sessions;
mod leader;
mod delays;
pub mod backup;
#[cfg(feature = "simulation")]
pub mod simulation;
mod envelope;
mod command_versions;
pub mod request_error;
#[cfg(feature = "failpoints")]
mod command_fail_points;
#[doc(hidden)]
pub mod fuzz;
#[doc(hidden)]
pub mod counted;
// Old bytes through today's code, which takes names that are not public.
#[cfg(test)]
#[path = "../tests/golden/mod.rs"]
mod golden;

pub use admission::{AdmissionConfig, AdmissionCounts, Busy, OpeningBounds};
pub use cluster_events::{ClusterHappened, ClusterHappening, MAX_CHRONICLE};
pub use config::{NodeConfig, SessionBounds, SweepConfig};
pub use fault_injection::{fail_points, fail_step};
pub use instruments::counters;
pub use lock_history;
pub use metrics::MetricsConfig;
pub use node::{BackupRefused, HistoryError, Node, OpenedSession, Proposal};
pub use observers::config::{HistoryConfig, SessionEventsConfig, WatchConfig};
pub use observers::history::{HistoryEntry, LockHistory};
pub use observers::hub::happenings::{
    Happened, Happening, Happenings, MAX_HAPPENINGS, MAX_ONLOOKERS, TooManyOnlookers,
};
pub use observers::hub::session_events::{
    EventPosition, NoPosition, SessionEvent, SessionEventCounts, StreamLost, TooManyStreams,
};
pub use observers::hub::{ArmedWatches, GrantWait, NotArmed, Verdict, Watcher, WatchesLost};
pub use raft_log::FileSizes;
pub use raft_node::{
    Alarm, AlarmKind, ClusterStatus, DiskConfig, DiskReport, Followers, InvalidSetting, MAX_MEMBERS,
    MAX_PROMOTE_LAG, MIN_SEND_BYTES_PER_SECOND, MemberAddress, MemberNews, MemberStatus, MembershipChange,
    MembershipChanged, MembershipError, MembershipRefusal, NodeId, RaftNodeConfig, RaftTiming, Role,
    SnapshotConfig, SnapshotMade, StartError, Unavailable,
};
pub use raft_node::{disk_health, error, membership, status, storage, versions};
pub use request_error::{HeartbeatError, OpenSessionError, ProposeError};
pub use session_stream::{FollowError, SessionStream, StreamBegin, StreamLook, Told, ToldWhat};
pub use tuning::Tuning;
pub use watch_connection::{WatchConnection, WatchingLook};
pub use znode_store;
pub use znode_watch::{
    self, NoWatch, Notice, TooManyWatches, WatchCounts, WatchKind, WatchLimits, WatchLists, WatcherType,
};
