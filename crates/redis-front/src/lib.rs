//! Front end for Redis clients: programs that take their locks from Redis get replicated locks by a change of address.
//!
//! # Overview
//!
//! One task serves one connection and executes its commands one after the other. A key is a lock of the tree, by default below `redis/`; its
//! value is the note of the lease that holds the lock; its time to live is the lease's. So queue, history, break, policies and fencing tokens
//! are those of all locks, and a lock that is held over HTTP or by a ZooKeeper client excludes a Redis client.
//!
//! - Reads are linearizable at every node: [`lock_node::Node::read_barrier`] comes first.
//! - A change that depends on the value is a read and one command that names the lease which was read. If the key has changed meanwhile, the
//!   command is refused and the operation begins again.
//! - `SET NX` of a key that is in use writes nothing to the log.
//! - A client of Redlock sends one value to every address that it knows, which may be the nodes of one cluster. So a node confirms a lease that
//!   another node has granted, once: `SET NX` with the value that holds the lock is answered with `OK`, and renews the lease.
//! - No clock decides: a key expires when the leader's entry says so.
//! - A command with an unknown outcome ends its connection, as a lost Redis would.
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | `request`, `reply` | the bytes of RESP2 and RESP3 |
//! | `serve`, `connection`, `client` | the port, one connection, the state of one client |
//! | `commands`, `options`, `info`, `listing`, `signals` | commands by name; options of `SET`; the server about itself; all keys; `BLPOP` |
//! | `metrics`, `names` | metrics and spans of commands; the names of all commands |
//! | `scripts` | scripts of known libraries, by SHA-1 |
//! | `operations`, `keys`, `answers`, `name` | what the commands do; reads and changes of one key; what this node has answered; the lock of a key |
//!
//! # Outside the scope
//!
//! There is no Lua interpreter, no type of value but strings and the hash of Redisson's locks, and no channel but those of waiters. The meaning of the commands of the log is part of the state machine.

mod config;
mod front;
mod serve;
mod connection;
mod client;
mod commands;
mod scripts;
mod listing;
mod signals;
mod wakes;
mod info;
mod options;
mod operations;
mod reentrant;
mod keys;
mod answers;
mod name;
mod metrics;
mod names;
pub mod reply;
pub mod request;

pub use config::{Protection, RedisConfig};
pub use front::Front;
pub use names::is_command;
pub use serve::serve;
