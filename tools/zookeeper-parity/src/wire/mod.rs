//! ZooKeeper's client protocol for one blocking client, which preserves the order of everything that it
//! receives. The records are those of `zk-wire`.

mod connection;

pub use connection::{Accepted, ConnectOutcome, Connection, Password, Reaction, Response};
pub use zk_wire::{
    AclEntry, CreateCall, ErrorCode, MultiResult, Notification, Outcome, Reply, Request, SetWatches, Stat,
    event_type, keeper_state, op_code, watch_mode, watcher_type,
};
