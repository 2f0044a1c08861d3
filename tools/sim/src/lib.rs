//! Deterministic simulation of a whole Lockgate cluster in one thread, under one seed: nodes with their real
//! code, clients, and all kinds of faults.
//!
//! # Idea
//!
//! The behaviour of a distributed program follows from its code and from what it cannot choose: the order of
//! messages, the ticks of clocks, the content of a disk after a power cut, random numbers. Here all of that
//! comes from a seed. A run with a violation can be repeated by its seed, and a run that would take a real
//! cluster minutes takes seconds.
//!
//! ```text
//!                     agenda: event queue ────── one step at a time ─────► invariants: checks
//!                        │           ▲
//!         ┌──────────────┼───────────┴──────┬────────────────┐
//!         ▼              ▼                  ▼                ▼
//!      clients        network            machines          faults
//!     (requests)    (connections)   (clock, disk, and a   (and their
//!                                    node in a runtime      repairs)
//!                                    of its own)
//! ```
//!
//! Each machine has a tokio runtime with a paused clock. The loop of [`world`] takes the next event, delivers
//! it to its machine, and runs that machine's runtime until it waits; every millisecond all clocks advance.
//! Killing a process means dropping its runtime: its memory is lost, as in reality.
//!
//! # Terms
//!
//! - **Seed**: the number from which everything is drawn. [`plan`] describes what it determines at the start.
//! - **Step**: an event: an arrival, a client's action, a fault. Ticks of the clocks are not counted.
//! - **Machine**: the host of a node, with what survives the node: the disk, the address.
//! - **Invariant**: a property that is checked in each step ([`invariants`]). A violation ends the run.
//! - **Ending**: the last phase of a run ([`ending`]): a healthy majority must serve while everything else stays
//!   broken, and then all nodes must agree.
//!
//! # Guarantees
//!
//! - The same seed with as many steps is the same run, in a process of its own. Two runs of one build can be
//!   compared by their trace; another build may draw differently.
//! - The nodes run the production code, with the seams of `lock_node::simulation`: connections, disk, clocks, and
//!   threads (there is one). Randomness is replaced at the system call, by `mad-turmoil`.
//!
//! # Out of scope
//!
//! HTTP, ZooKeeper's protocol, the kernel, races between threads, membership changes: `tools/jepsen` tests
//! them with real processes.

pub mod run;
pub mod world;
pub mod plan;
pub mod agenda;
pub mod fault_events;
pub mod time;
pub mod faults;
pub mod ending;
mod rollback;
mod policies;
mod quotas;
pub mod stalls;
pub mod invariants;

pub mod machine;
pub mod device;
pub mod network;
pub mod clients;

pub mod dice;
pub mod log_prefix;
pub mod fleet;
pub mod mutants;
pub mod regressions;
pub mod stopwatch;
