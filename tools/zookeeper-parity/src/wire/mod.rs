//! The ZooKeeper client protocol as seen by one blocking client, which keeps what it was told in the order in which it was
//! told. The records are `zk-wire`'s.

mod connection;

pub use connection::{Accepted, Answer, Answered, Connection, Password, Resumed};
pub use zk_wire::{
    AclEntry, CreateCall, ErrorCode, MultiResult, Notification, Outcome, Reply, Request, SetWatches, Stat,
    event_type, keeper_state, op_code, watch_mode, watcher_type,
};
