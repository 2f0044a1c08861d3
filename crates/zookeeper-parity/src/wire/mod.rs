//! The ZooKeeper client protocol as seen by one blocking client.
//!
//! `jute` is the encoding, `request` and `reply` are the records, `code` the errors, `connection` a client that
//! keeps what it was told in the order in which it was told.

mod code;
mod connection;
mod jute;
mod reply;
mod request;

pub use code::ErrorCode;
pub use connection::{Accepted, Answer, Answered, Connection, Password, Resumed};
pub use jute::Malformed;
pub use reply::{Notification, Outcome, Reply, Stat};
pub use request::{AclEntry, CreateCall, Request, SetWatches};
