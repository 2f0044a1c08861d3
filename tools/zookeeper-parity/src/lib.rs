//! Random programs against Lockgate's state machine and a real ZooKeeper, which must give the same answers.
//!
//! For ZooKeeper's clients, Lockgate's tree must mean the same as ZooKeeper's. No document specifies that
//! completely: the specification is the behaviour of ZooKeeper 3.8 over the wire. So this crate queries it. A
//! [program] describes the actions of up to three sessions: create, delete, protect, watch, authenticate,
//! lose connections and resume, fill quotas, send malformed requests. It runs on a server of this machine
//! ([`zookeeper`]) and on the state machine with its watches in this process ([`lockgate`]). Both must
//! produce the same [trace]: every result, every stat, every error, every notification in its place, and the
//! final tree. If they differ, the program is minimized ([`compare`]) and printed.
//!
//! Deliberate differences are in one table ([`differences`]), each entry with a reason and, if possible, a
//! program that shows it; `docs/reference/zookeeper-differences.md` is generated from it. The [generator](generate)
//! avoids them.
//!
//! ```text
//! zookeeper-parity --programs 10000 --seed 1 --servers 2
//! ```
//!
//! # Reason for a separate client
//!
//! The comparison includes *when* a notification arrives: before the reply to which request, on which
//! connection. Existing client crates deliver notifications and replies separately, which loses their order.
//! [`wire`] is a small client that keeps both in their one stream, and that can send malformed requests.
//!
//! # Measurements
//!
//! An example measures instead of comparing: `memory` (the cost of a million znodes). An [`ensemble`] is
//! provided for measurements with three servers. `tools/compare` measures the speed of both.
//!
//! # Comparability of two servers
//!
//! - **Numbers.** Zxids, times and session ids are specific to a server. A zxid is replaced by the number of the
//!   step that it was assigned to; times must agree where zxids do; session ids become the numbers of the sessions.
//! - **Quiet.** After each change every connection of the program sends a ping, whose reply follows everything that
//!   was sent before. So the notifications of a step are known, and no test waits for time to pass.
//! - **Separate roots.** Each run has a root of its own, and one server runs thousands of programs, one after the
//!   other. One program on a fresh server compares the reserved tree ([`reserved`]).
//! - **Seeds.** A program follows from its seed alone.
//!
//! # Out of scope
//!
//! - Effects of the clock: the expiry of sessions, the sweeping of containers and TTL nodes.
//! - Clusters, elections, snapshots: both sides are a single replica here.
//! - The ZooKeeper front end. [`lockgate`] translates requests as any front end must, and is tested to that extent;
//!   frames, pings and handshakes are not.

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
