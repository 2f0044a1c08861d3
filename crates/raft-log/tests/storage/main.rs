//! Tests of the storage against crashes, failing calls and damage, on a simulated disk.
//!
//! * `crash`: random programs with a crash at every moment. Acknowledged writes must survive, and nothing may
//!   appear that was never written.
//! * `faults`: every call of a program fails once.
//! * `damage`: every bit is flipped once, every sector lost once, every file missing once.
//! * `planted`: the suite must find deliberate bugs.
//!
//! `STORAGE_SEED` sets the first seed and `STORAGE_PROGRAMS` the number of programs. A failure prints the
//! seed that reproduces it.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on may say so shortly, also in its helpers"
)]

mod crash;
mod damage;
mod faults;
mod node;
mod planted;
mod state;
