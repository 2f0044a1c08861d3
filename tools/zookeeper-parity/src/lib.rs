//! Random programs against Lockgate's state machine and a real ZooKeeper, which must answer alike.
//!
//! Lockgate's tree is to mean what ZooKeeper's means, for ZooKeeper's clients. What that is, is not in any document in
//! full: what ZooKeeper 3.8 does over the wire is the specification. So this crate asks it. A [program] says what up
//! to three sessions do: create, delete, protect, watch, authenticate, lose their connections and come back, fill
//! quotas, send what makes no sense. It is carried out by a server of this machine ([`zookeeper`]) and by the state
//! machine with its watches in this process ([`lockgate`]), and both must show the same [trace]: every result, every
//! stat, every error, every notification in its place, and what is there in the end. Where they differ, the program
//! is made as small as it can be ([`compare`]) and printed.
//!
//! What differs on purpose is in one table ([`differences`]), each entry with a reason and, if possible, a program
//! that shows it; `docs/zookeeper-differences.md` is that table. The [generator](generate) keeps away from it.
//!
//! ```text
//! zookeeper-parity --programs 10000 --seed 1 --servers 2
//! ```
//!
//! # Why there is a client in here
//!
//! What is compared includes *when* a notification comes: before the reply to which request, on which connection.
//! The client crates that there are hand notifications to one place and replies to another, and their order is
//! lost. [`wire`] is a small client that keeps both in the one stream in which they came, and that sends what no
//! decent client would.
//!
//! # Beside the comparison
//!
//! An example measures, where the rest of this crate compares: `memory` (what a million znodes cost). An [`ensemble`] is there for
//! measurements that need three servers. How fast both are, `tools/compare` tells.
//!
//! # What makes two servers comparable
//!
//! - **Numbers.** Zxids, times and session ids are a server's own. A zxid becomes the number of the step that it was
//!   given for; times must agree where zxids do; session ids become the numbers of the sessions.
//! - **Quiet.** After each change every connection of the program is asked for a ping, whose reply comes after all
//!   that was sent before. So it is known what a step told to whom, and nothing waits for time to pass.
//! - **A root of one's own.** Each run has a root that no other has, and one server serves thousands of programs,
//!   one after the other. The reserved tree is compared by one program on a fresh server ([`reserved`]).
//! - **Seeds.** A program follows from its seed alone.
//!
//! # What is absent, on purpose
//!
//! - What goes by the clock: the expiry of sessions, the sweeping of containers and TTL nodes.
//! - Clusters, elections, snapshots: both sides are one replica here.
//! - The front end for ZooKeeper's clients. [`lockgate`] translates requests as any front end must, and is tested
//!   as far as that goes; frames, pings and handshakes are another matter.

pub mod wire;

pub mod program;
mod rng;
pub mod generate;
pub mod reserved;
pub mod differences;
mod show;

pub mod side;
pub mod trace;
pub mod tally;

pub mod server;
pub mod ensemble;
pub mod zookeeper;
pub mod lockgate;
mod front;

pub mod arena;
pub mod compare;
