//! Replication of a state machine: entries of a Raft log that every member of the cluster applies in the same order.
//!
//! # Data flow
//!
//! Any node accepts commands. Its forwarder sends them to the leader, whose batcher packs them with others
//! into one entry of Raft's log. A quorum writes the entry to its disks, and every node applies it to its
//! copy of the state. The node that accepted a command learns the outcome from **its own** state, which
//! applies the command like every other.
//!
//! ```text
//!   proposals ──► forwarder ──(to the leader, on any node)──► batcher ──► raft ──► log (fdatasync)
//!                                                                              │
//!                                                                         a quorum has it
//!                                                                              ▼
//!   ReplicatedState ◄──────────────────────── state machine ◄────────────── every node
//! ```
//!
//! A program provides its state to a [`RaftNode`] as a
//! [`ReplicatedState`](replicated_state::ReplicatedState), and itself as an
//! [`Application`](application::Application). `lock-node` does so with the state machine of locks.
//!
//! # Vocabulary
//!
//! - **Term**, **index**, **leader**, **quorum**: Raft's. A *log position* is an index with its term.
//! - **Proposal**: commands bound to the term in which they were sent. In any other term they are void.
//! - **Disk id**: the id of a data directory. A member *is* its directory: one that was lost cannot return
//!   under the same id.
//!
//! # Guarantees
//!
//! - An applied entry is on a quorum's disks, whatever process or machine fails afterwards.
//! - A proposal that was sent in an earlier term than that of the last applied entry, and was not applied,
//!   never will be. So it can be sent again, and is applied once.
//! - A node that was removed, or whose data directory was lost or rolled back, takes no further part.
//!
//! # What this crate must not know
//!
//! Commands are bytes whose first byte is their version, snapshots are parts of bytes, sessions are numbers.
//! This crate knows no locks, no lifetimes of sessions, no znodes and no HTTP: it depends neither on the
//! state machine nor on its observers. openraft is known to `types.rs`, `state_machine.rs`,
//! `peers/network.rs`, `storage/log_store` and the few modules that call Raft. No type of openraft reaches a
//! disk or a wire, nor the crates above. Wall clocks are read only for times shown to people (the time in an
//! entry); all deadlines are monotonic.

pub mod ids;
pub mod invalid_setting;
pub mod messages;
pub mod raft_config;
pub mod config;
pub mod counters;
pub mod replicated_state;
pub mod application;
pub mod node;
pub mod status;

mod forwarder;
mod fast_failover;
mod batcher;
pub mod command_batch;
pub mod disk_health;
mod state_machine;
mod compaction;
mod leader_client;
pub mod leader_view;
pub mod formation;
mod panics;
mod witness;
pub mod audit;
pub mod membership;
pub mod peers;
pub mod storage;
mod snapshot_file;
pub mod blocking;
pub mod wall_clock;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod cluster_clock;
pub mod codec;
pub mod versions;
mod types;
pub mod error;
#[doc(hidden)]
pub mod fuzz;
#[doc(hidden)]
pub mod counted;
// A module of this crate, because the tests use private names.
#[cfg(test)]
#[path = "../tests/golden/mod.rs"]
mod golden;
#[cfg(test)]
mod testing;

pub use compaction::SnapshotMade;
pub use config::RaftNodeConfig;
pub use disk_health::{Alarm, AlarmKind, DiskConfig, DiskReport, MemberNews};
pub use error::{StartError, Unavailable};
pub use ids::{MemberAddress, NodeId};
pub use invalid_setting::InvalidSetting;
pub use membership::{
    MAX_MEMBERS, MAX_PROMOTE_LAG, MembershipChange, MembershipChanged, MembershipError, MembershipRefusal,
};
pub use node::{OpenedStorage, Program, RaftNode, SnapshotMember};
pub use panics::{PanicGuard, Tasks};
pub use raft_config::{MIN_SEND_BYTES_PER_SECOND, RaftTiming, SnapshotConfig};
pub use status::{ClusterStatus, Followers, MemberStatus, NodeIdRange, Role};
pub use types::Proposal;
