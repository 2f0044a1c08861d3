//! The watches, tested through their boundary alone: events of a real store in, notices out.
//!
//! `script` runs tests/scripts/*.txt, which state one rule each; `property` compares with a `model` that does what
//! ZooKeeper does in the way in which ZooKeeper does it, and asks whether anything is missed while nobody looks. To take
//! the present output of the scripts as the expected one, run with UPDATE_GOLDENFILES=1 and review the difference.
#![allow(clippy::unwrap_used)] // A test that cannot go on may say so in this way.

mod model;
mod policies;
mod property;
mod script;
mod tree;
