//! The index from outside: against a naive observer of the state machine, over restarts, and when its files are spoilt.
#![allow(
    clippy::unwrap_used,
    reason = "in a test a panic is the message that something is wrong"
)]

mod bounds;
mod damage;
mod model;
mod property;
mod told;
