//! A node of Lockgate: the state machine of [`znode_store`] made replicated, durable and timely.
//!
//! # The idea
//!
//! A command that any node is handed is packed with others into one entry of Raft's log; a quorum writes the
//! entry to its disks; every node applies it to its copy of the state. The caller is answered by **its own
//! node's** apply, so what it reads there afterwards is never older than what it was told.
//!
//! ```text
//!   Node::propose ──► submitter ──(to the leader, wherever it is)──► proposer ──► raft ──► log (fdatasync)
//!        ▲                                                                         │
//!        │                                                                    a quorum has it
//!        │                                                                         ▼
//!   calls ◄── answers ── replica ◄──────────────── machine ◄────────────────── every node
//!   hub   ◄── events  ──┘    └── sessions: what the leader has heard
//! ```
//!
//! # Words
//!
//! - **Term**, **index**, **leader**, **quorum**: Raft's. A *log position* is an index with its term.
//! - **zxid**: the position in the history of the tree; one entry carries many commands, each with its own.
//! - **Proposal**: a run of commands bound to the term in which it was made. In any other term it is void.
//! - **Call**: a proposal of this node that somebody waits for.
//! - **Disk id**: the name of a data directory. A member *is* its directory: one that was lost cannot come
//!   back under the same id.
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
//! # use raft_node::{MemberAddress, Node, NodeConfig};
//! # use raft_node::znode_store::{Acl, Command, CreateMode, CreatePath, Op, Request};
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
//! # Layers
//!
//! - **Replication** brings entries to every node's state, whatever the state is: `peers`, `membership`, `succession`, `formation`,
//!   `storage`, `snapshot_file`, `state_machine`, `compaction`, `audit`, `witness`, `disks`, `cluster_clock`. It knows the state as a
//!   `ReplicatedState`, and the node above it as an `Application`; commands and snapshots are bytes to it, sessions are numbers. A test of
//!   `tools/check` holds that it imports nothing of the layers above.
//! - **The node** proposes commands, applies them, keeps the sessions' deadlines and answers reads: `node`, `replica`, `calls`, `submitter`,
//!   `proposer`, `asker`, `leader`, `sessions`, `admission`, `backup`.
//! - **Observers** see what was applied, in order: `hub` (watches, grants, session events), `history`, `metrics`.
//!
//! Nothing here knows HTTP or what a lock is for: front ends do. openraft is known to `types.rs`, `state_machine.rs`, `peers/network.rs`,
//! `storage/log_store` and the few modules that call Raft; no type of openraft reaches a disk or a wire. Wall clocks are read for people
//! (the time in a batch) and to sweep empty containers; all deadlines are monotonic.

mod ids;
mod invalid_setting;
mod messages;
mod raft_config;
pub mod config;
pub mod counters;
pub mod node;
pub mod status;
pub mod metrics;
pub mod traces;
mod tuning;
mod slow;
mod subject;

pub mod admission;
mod submitter;
mod stall_log;
mod succession;
mod proposer;
pub mod disks;
mod replicated_state;
mod state_machine;
mod compaction;
mod replica;
mod calls;
mod sync;
pub mod hub;
mod watch_connection;
mod session_stream;
mod tap;
pub mod history;
mod sessions;
mod leader;
mod leader_view;
mod delays;
mod asker;
mod formation;
mod panics;
mod witness;
mod audit;
pub mod backup;
pub mod membership;
mod peers;
pub mod storage;
mod snapshot_file;
mod blocking;
mod wall_clock;
#[cfg(feature = "simulation")]
pub mod simulation;
mod cluster_clock;
mod codec;
mod envelope;
pub mod versions;
mod command_versions;
mod types;
pub mod error;
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
pub use compaction::SnapshotMade;
pub use config::{HistoryConfig, NodeConfig, SessionBounds, SessionEventsConfig, SweepConfig, WatchConfig};
pub use disks::{Alarm, AlarmKind, DiskConfig, DiskReport, MemberNews};
pub use error::{StartError, Unavailable};
pub use fault_injection::{fail_points, fail_step};
pub use history::{HistoryEntry, HistoryError, LockHistory};
pub use hub::chronicle::{ClusterHappened, ClusterHappening, MAX_CHRONICLE};
pub use hub::happenings::{Happened, Happening, Happenings, MAX_HAPPENINGS, MAX_ONLOOKERS, TooManyOnlookers};
pub use hub::session_events::{
    EventPosition, NoPosition, SessionEvent, SessionEventCounts, StreamLost, TooManyStreams,
};
pub use hub::{ArmedWatches, GrantWait, NotArmed, Verdict, Watcher, WatchesLost};
pub use ids::{MemberAddress, NodeId};
pub use invalid_setting::InvalidSetting;
pub use lock_history;
pub use membership::{
    MAX_MEMBERS, MAX_PROMOTE_LAG, MembershipChange, MembershipChanged, MembershipError, MembershipRefusal,
};
pub use metrics::MetricsConfig;
pub use node::{BackupRefused, Node, OpenedSession, Proposal};
pub use raft_config::{MIN_SEND_BYTES_PER_SECOND, RaftTiming, SnapshotConfig};
pub use raft_log::FileSizes;
pub use request_error::{HeartbeatError, OpenSessionError, ProposeError};
pub use session_stream::{FollowError, SessionStream, StreamBegin, StreamLook, Told, ToldWhat};
pub use status::{ClusterStatus, Followers, MemberStatus, Role};
pub use tuning::Tuning;
pub use watch_connection::{WatchConnection, WatchingLook};
pub use znode_store;
pub use znode_watch::{
    self, NoWatch, Notice, TooManyWatches, WatchCounts, WatchKind, WatchLimits, WatchLists, WatcherType,
};
