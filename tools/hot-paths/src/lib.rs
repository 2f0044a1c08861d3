//! How many instructions the hot paths of Lockgate take: the guard against becoming slower bit by bit.
//!
//! # The idea
//!
//! Time on a machine that others use says little: a change of ten per cent drowns in it. The number of instructions of a
//! path is nearly the same in every run, on an idle machine and on a busy one. So each path of [`paths`] runs once
//! under valgrind's callgrind, which counts what is executed within [`region::instructions_counted_here`] and nothing else, and the counts are
//! held against those in `counts/`, one line for each path. More than a tenth more fails; so does more than a tenth less,
//! for the file is then to say so: what was gained would otherwise be lost again unseen.
//!
//! # What makes the counts repeatable
//!
//! - Each path has a process of its own, so none depends on what ran before it.
//! - What asks the operating system for random bytes gets them from a seed (`mad-turmoil`, as in the simulation).
//! - Whole requests run on the simulated machine of `raft_node::simulation`: one thread, a clock that stands still
//!   unless everybody waits, a disk in memory that needs no time.
//! - The allocator is the C library's, which does not look at a clock. The server's own one is not counted.
//!
//! # What they do not say
//!
//! An instruction is not a unit of time: what waits for memory, for a lock, for the kernel or for a disk is not seen here.
//! [docs/internals/benchmarks/results.md](../../../docs/internals/benchmarks/results.md) has the times.

pub mod region;
pub mod paths;
pub mod expected;
pub mod valgrind;
