//! Tests of the watches through the public API: events of a real store in, notices out.
//!
//! `script` runs tests/scripts/*.txt, which state one rule each. `property` compares the watches
//! with a `model` of ZooKeeper's own algorithm, and checks that a node that was behind misses no
//! event. To accept the present output of the scripts, run with UPDATE_GOLDENFILES=1 and review the
//! difference.
#![allow(clippy::unwrap_used)] // Tests may panic.

mod model;
mod policies;
mod property;
mod script;
mod tree;
