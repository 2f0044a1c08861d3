//! Fuzz targets for all code that reads bytes from outside: commands in log entries, snapshots, logs and
//! identities in files, frames of ZooKeeper's protocol and of other nodes, and HTTP requests.
//!
//! A target is a function that takes arbitrary bytes and panics if a property does not hold:
//!
//! | target | input | property |
//! |---|---|---|
//! | [`command::run`] | the commands of a log entry | encoding a decoded command yields the same value;
//! replicas return the same results, even if restored at any point |
//! | [`snapshot::run`] | a snapshot file | the result is an error, or a complete state that behaves as any
//! other |
//! | [`wire::run`] | frames of a client or a server of ZooKeeper's protocol | encoding a decoded record of
//! any type yields the same value |
//! | [`redis::run`] | requests of a Redis client | requests do not depend on how their bytes arrive; encoding
//! a decoded request yields the same request |
//! | [`peer::run`] | frames from another node | encoding a decoded message yields the same value; Raft
//! receives only valid messages; unknown nodes are rejected |
//! | [`disk::files::run`] (`log`) | a node's identity and log | the directory is rejected as damaged, or
//! holds a log without holes that takes more entries |
//! | [`disk::rot::run`] (`rot`) | damage to the files that a node has written | the directory is rejected, or
//! holds the state after one of the writes |
//! | [`http::run`] | requests to the HTTP routes | bodies match their types, failures are documented
//! problems, and no exclusive lock has two holders |
//! | [`doors::run`] | requests to a secured cluster, by callers with few permissions | callers see and change
//! nothing without permission |
//!
//! libFuzzer calls the targets from `tools/fuzz/libfuzzer`, which needs a nightly compiler;
//! `tools/fuzz/README.md` shows the commands. This crate contains everything that works without nightly: the
//! targets, the first inputs ([`seeds`]), and mutations of inputs that preserve lengths and checksums
//! ([`mutate`]). Plain `cargo test` replays the collected inputs (`tools/fuzz/corpus`) from `tests/`.
//!
//! The targets do not decide which result is right. They only check that two replicas agree and that nothing
//! panics; `znode-store`'s own tests check the rules.

pub mod command;
pub mod disk;
pub mod doors;
pub mod http;
pub mod mutate;
pub mod peer;
pub mod redis;
pub mod replicas;
pub mod seeds;
pub mod snapshot;
pub mod wire;

mod read_all;
mod material;
