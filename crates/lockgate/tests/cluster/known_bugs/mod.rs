//! What went wrong in other lock services, each as a test that is named after the report it comes from.
//!
//! | report | what went wrong there | test in |
//! |---|---|---|
//! | etcd 11456 | a waiter was granted the lock after its own session had died | `sessions.rs` |
//! | etcd 19597, 22387 | a waiter whose session had expired waited on for ever | `sessions.rs` |
//! | etcd 15247, 12528 | a leader that had stalled revoked what its successor had renewed | `sessions.rs` |
//! | ClickHouse Keeper 121361 | who spoke to followers alone lost its session | `sessions.rs` |
//! | ClickHouse Keeper 116690 | an expired session was silently replaced by another one | `sessions.rs` |
//! | ClickHouse Keeper 114401 | who asked for a session while the leader changed waited for its whole timeout | `sessions.rs` |
//! | CURATOR-604 | a client took its former session's place for its own | `sessions.rs` |
//! | go-zero 5545 | what was created for a dead session stayed for ever | `sessions.rs` |
//! | etcd 22082 | a release that was sent again gave back a later acquire | `locks.rs` |
//! | etcd 16221 | when a waiter vanished, the next one was let in beside the holder | `locks.rs` |
//! | CURATOR-678, CURATOR-307 | after a release that failed, client and server had different opinions | `locks.rs` |
//! | CURATOR-335, CURATOR-595 | permits of a semaphore leaked with the connections of their holders | `locks.rs` |
//! | CURATOR-527 | a change between the look and the watch was never told | `locks.rs` |
//! | hiqlite 352 | who gave up at the moment of its grant blocked the lock for ever | `locks.rs` |
//! | ZOOKEEPER-2355, 3144, 3145, 4837 | ephemeral nodes of sessions that had ended came back with a snapshot | `storage.rs` |

mod locks;
mod sessions;
mod storage;
