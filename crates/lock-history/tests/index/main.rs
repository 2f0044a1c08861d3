//! Tests of the index through its public API: against a naive observer of the state machine, over restarts,
//! and with damaged files.
#![allow(
    clippy::unwrap_used,
    reason = "in a test a panic is the message that something is wrong"
)]

mod bounds;
mod damage;
mod model;
mod property;
mod support;
