//! The storage against crashes, failing calls and damage, on a simulated disk.
//!
//! * `crash`: random programs, cut off at every moment; what was acknowledged must be there, nothing may be
//!   invented.
//! * `faults`: every call of a program fails once.
//! * `damage`: every bit is flipped once, every sector lost once, every file gone once.
//! * `planted`: the suite must find bugs that are put in on purpose.
//!
//! `STORAGE_SEED` sets the first seed and `STORAGE_PROGRAMS` how many programs are tried; a failure says which
//! seed to use again.

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
