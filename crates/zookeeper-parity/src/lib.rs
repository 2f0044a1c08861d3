//! Random programs against Lockgate's state machine and a real ZooKeeper, which must answer alike.
//!
//! What ZooKeeper does over the wire is the specification.
pub mod wire;

pub mod program;
mod rng;
pub mod generate;
mod show;

pub mod side;
pub mod tally;
pub mod trace;
pub mod server;
pub mod zookeeper;
pub mod lockgate;

pub mod arena;
pub mod compare;
