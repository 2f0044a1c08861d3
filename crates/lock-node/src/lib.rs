//! Lockgate node: replicates the state machine of [`znode_store`], makes it durable, and keeps the deadlines of its sessions.
//!
//! # Overview
//!
//! Any node receives a command, [`raft_node`] replicates it, and every node applies it to its copy of the state. The caller gets its answer when
//! **its own node** has applied the command, so a later read there is never older than the answer.
//!
//! ```text
//!   Node::propose ──► pending proposals ──► raft-node: forwarded to the leader, one entry of many commands, on a quorum's disks
//!        ▲                          │
//!        │                          ▼ every node
//!        └────────── answers ── replica ── events ──► observers: watches, grants, session events, feed, history, metrics
//!                                   │
//!                                   └── sessions: heartbeats at the leader
//! ```
//!
//! # Terms
//!
//! - **zxid**: position in the history of the tree. One log entry contains many commands, each with its own zxid.
//! - **Pending proposal**: proposal of this node without an outcome, whose caller waits.
//!
//! # Guarantees
//!
//! - A write that [`Node::propose`] acknowledged is on the disks of a quorum, so it survives any later crash of processes.
//! - [`ProposeError::Unavailable`] means that the command was not applied, and never will be. [`ProposeError::OutcomeUnknown`] is returned only
//!   after the commit timeout, when a snapshot hides the outcome, or when the node stops. The loss of the leader with a proposal in flight does
//!   not cause it: the node sends a proposal of an earlier term again as soon as it applies an entry of a later one.
//! - A confirmed heartbeat ([`Node::heartbeat`]) was counted by a node with proof that it still led *after* the heartbeat had arrived. The session
//!   lives for at least its timeout after the heartbeat was sent.
//! - The proposed end of a session is valid only in the term of the leader that proposed it.
//! - A watch that is armed together with a read ([`Node::read_and_watch`], [`WatchConnection::read`]) fires at the first change after the state that
//!   was read. A notice is queued for its client before the answer of the command that caused it, and before any client can read the change on
//!   this node. A watcher that has missed a change is notified of that.
//!
//! # Example
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
//! # Boundaries
//!
//! This crate does not know HTTP or the ZooKeeper protocol: the front ends do, and they do not know each other. It does not know openraft or the
//! messages of peers: `raft-node` does. Only `znode-store` defines locks and decides their holders.

pub mod config;
pub mod node;
pub mod metrics;
pub mod traces;
mod hold_spans;
mod runtime_config;
mod slow_log;
mod random_bytes;
mod command_label;

pub mod admission;
mod stall_log;
mod replica;
mod pending_proposals;
mod fair_queue;
mod application;
mod watch_connection;
mod session_stream;
mod cluster_events;
mod sessions;
mod leader;
mod lock_delay_timer;
mod hold_timer;
mod in_transit;
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
// Tests that decode old bytes by the current code. They are in the crate because they need private names.
#[cfg(test)]
#[path = "../tests/golden/mod.rs"]
mod golden;

pub use admission::{AdmissionConfig, AdmissionCounts, Busy, OpeningBounds};
pub use cluster_events::{ClusterEvent, ClusterEventKind, MAX_CLUSTER_EVENTS};
pub use config::{NodeConfig, SessionBounds, SweepConfig};
pub use fault_injection::{fail_points, fail_step};
pub use instruments::counters;
pub use lock_history;
pub use metrics::MetricsConfig;
pub use node::{BackupRefused, HistoryError, Node, OpenedSession, SubmittedProposal};
pub use observers::config::{HistoryConfig, SessionEventsConfig, WatchConfig};
pub use observers::event_feed::{
    FeedEvent, FeedEventKind, FeedPage, MAX_FEED_EVENTS, MAX_FEED_SUBSCRIBERS, TooManyFeedSubscribers,
};
pub use observers::history::{HistoryEntry, LockHistory};
pub use observers::journal::{EventPosition, NoPosition};
pub use observers::notifier::{ArmedWatches, GrantWait, NotArmed, WaitOutcome, Watcher, WatchesLost};
pub use observers::session_events::{SessionEvent, SessionEventCounts, StreamLost, TooManyStreams};
pub use raft_log::FileSizes;
pub use raft_node::{
    Alarm, AlarmKind, ClusterStatus, DiskConfig, DiskReport, Followers, InvalidSetting, MAX_MEMBERS,
    MAX_PROMOTE_LAG, MIN_SEND_BYTES_PER_SECOND, MemberAddress, MemberNews, MemberStatus, MembershipChange,
    MembershipChanged, MembershipError, MembershipRefusal, NodeId, RaftNodeConfig, RaftTiming, Role,
    SnapshotConfig, SnapshotMade, StartError, Unavailable,
};
pub use raft_node::{disk_health, error, membership, status, storage, versions};
pub use request_error::{HeartbeatError, OpenSessionError, ProposeError};
pub use runtime_config::RuntimeConfig;
pub use session_stream::{
    FollowError, SessionStream, StreamBegin, StreamOpening, StreamedEvent, StreamedEventKind,
};
pub use watch_connection::{WatchConnection, WatchedRead};
pub use znode_store;
pub use znode_watch::{
    self, NoWatch, Notice, TooManyWatches, WatchCounts, WatchKind, WatchLimits, WatchLists, WatcherType,
};
