//! Fuzz targets for all that reads bytes from elsewhere: commands out of log entries, snapshots, logs and identities out of
//! files, frames of ZooKeeper's protocol and of other nodes, and requests over HTTP.
//!
//! A target is a function that takes any bytes and panics if something does not hold that must:
//!
//! | target | the bytes are | must hold |
//! |---|---|---|
//! | [`command::run`] | the commands of a log entry | what is decoded is encoded to the same value; replicas, restored at any point, answer alike |
//! | [`snapshot::run`] | a snapshot file | an error, or a whole state that goes on as any other |
//! | [`wire::run`] | what a client or a server of ZooKeeper's protocol sends | what is decoded, as whatever record, is encoded to the same value |
//! | [`peer::run`] | frames from another node | what is decoded is encoded to the same value; Raft is handed only what it could have made; strangers stay outside |
//! | [`disk::files::run`] (`log`) | a node's identity and log | refused as damaged, or a log without holes that goes on |
//! | [`disk::rot::run`] (`rot`) | what becomes of the files that a node has written | refused, or what was written up to some moment |
//! | [`http::run`] | requests to the HTTP routes | documents, problems of the table, and no lock with two holders |
//! | [`doors::run`] | the same to a secured cluster, by callers who may do little | they see and change nothing that they may not |
//!
//! libFuzzer calls them from `tools/fuzz/libfuzzer`, which needs a nightly compiler; `tools/fuzz/README.md` says
//! how. Here is all that needs none: the targets, what the first inputs are made of ([`seeds`]), how inputs are changed
//! so that lengths and checksums stay right ([`mutate`]), and in `tests/` the replay of the inputs that were found to be
//! worth keeping (`tools/fuzz/corpus`), which plain `cargo test` does.
//!
//! Nothing here decides what is right: that two replicas agree, and that nobody panics, is all that is asked. The rules
//! are the business of `znode-store`'s own tests.

pub mod command;
pub mod disk;
pub mod doors;
pub mod http;
pub mod mutate;
pub mod peer;
pub mod replicas;
pub mod seeds;
pub mod snapshot;
pub mod wire;

mod look;
mod material;
