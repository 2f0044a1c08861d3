//! Instruction counts of Lockgate's hot paths, which guard against gradual slowdown.
//!
//! # Method
//!
//! Time measured on a shared machine is imprecise: a change of ten per cent is lost in the noise. The number
//! of instructions of a path is nearly the same in every run, on an idle machine and on a busy one. So each
//! path of [`paths`] runs once under valgrind's callgrind, which counts only the instructions within
//! [`region::instructions_counted_here`]. The counts are compared with those in `counts/`, which has one line
//! for each path. A count that is more than a tenth higher fails. So does one that is more than a tenth
//! lower: unless the file records it, the improvement could be lost again unnoticed.
//!
//! # Repeatable counts
//!
//! - Each path has a process of its own, so none depends on what ran before it.
//! - Random bytes of the operating system come from a seed (`mad-turmoil`, as in the simulation).
//! - Whole requests run on the simulated machine of `lock_node::simulation`: one thread, a clock that
//!   advances only when every task waits, and a disk in memory that takes no time.
//! - The allocator is the C library's, which reads no clock. The server's own allocator is not counted.
//!
//! # Limits
//!
//! An instruction is not a unit of time: these counts do not include waiting for memory, for a lock, for the
//! kernel or for a disk. [docs/internals/benchmarks/results.md](../../../docs/internals/benchmarks/results.md) has the times.

pub mod region;
pub mod paths;
pub mod expected;
pub mod valgrind;
