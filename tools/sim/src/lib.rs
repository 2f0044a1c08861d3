//! Lockgate's whole cluster in one thread, under one seed: nodes with their real code, clients, and everything that goes wrong.
//!
//! # The idea
//!
//! What a distributed program does follows from its code and from what it cannot choose: which message comes first, when
//! a clock ticks, what a disk keeps when the power goes, what a random number is. Here all of that comes from a seed. A run
//! that finds something is found again by its seed, and a run that would take a real cluster minutes takes seconds.
//!
//! ```text
//!                     agenda: what happens when ──── one step at a time ───► invariants: what must hold
//!                        │           ▲
//!         ┌──────────────┼───────────┴──────┬────────────────┐
//!         ▼              ▼                  ▼                ▼
//!      clients        network            machines          faults
//!   (what is asked) (connections)   (clock, disk, and a   (what goes wrong,
//!                                    node in a runtime      and its repair)
//!                                    of its own)
//! ```
//!
//! Each machine has a tokio runtime with a clock that stands still. The loop of [`world`] takes the next event, hands it to the
//! machine that it concerns, and lets that one's runtime go on until it waits; every millisecond all clocks advance. A process
//! that is killed is a runtime that is dropped: what was in memory is gone, as it is.
//!
//! # Words
//!
//! - **Seed**: the number that everything is drawn from. [`plan`] says what it decides at once.
//! - **Step**: an event that happens: an arrival, a client's act, a fault. Ticks of the clocks are not counted.
//! - **Machine**: what a node runs on, and what outlives it: the disk, the address.
//! - **Invariant**: what is looked at in each step ([`invariants`]). A contradiction ends the run.
//! - **Ending**: what a run ends with ([`ending`]): a healthy majority must serve while all else stays broken, and then all must agree.
//!
//! # Guarantees
//!
//! - The same seed with as many steps is the same run, in a process of its own. Two runs of one build can be compared by their
//!   trace; another build may draw otherwise.
//! - The nodes run the code that serves, with the seams of `raft_node::simulation`: connections, disk, clocks, and threads
//!   (there is one). Randomness is taken from the system call itself, by `mad-turmoil`.
//!
//! # What is not here
//!
//! HTTP, ZooKeeper's protocol, the kernel, races between threads, changes of the membership: `tools/jepsen` runs real processes.

pub mod run;
pub mod world;
pub mod plan;
pub mod agenda;
pub mod faults;
pub mod ending;
mod rollback;
mod policies;
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
