//! Bugs of other lock services, each as a test with the name of its report.
//!
//! | report | bug | test in |
//! |---|---|---|
//! | etcd 11456 | a waiter was granted the lock after its own session had expired | `sessions.rs` |
//! | etcd 19597, 22387 | a waiter whose session had expired waited forever | `sessions.rs` |
//! | etcd 15247, 12528 | a stalled leader revoked leases that its successor had renewed | `sessions.rs` |
//! | ClickHouse Keeper 121361 | a client that sent requests only to followers lost its session | `sessions.rs` |
//! | ClickHouse Keeper 116690 | an expired session was silently replaced by another one | `sessions.rs` |
//! | ClickHouse Keeper 114401 | a session request during a leader change waited for its whole timeout | `sessions.rs` |
//! | CURATOR-604 | a client took the hold of its former session for its own | `sessions.rs` |
//! | go-zero 5545 | a znode created for an expired session stayed forever | `sessions.rs` |
//! | etcd 22082 | a repeated release released a later acquire | `locks.rs` |
//! | etcd 16221 | when a waiter vanished, the next one was granted the lock beside the holder | `locks.rs` |
//! | CURATOR-678, CURATOR-307 | after a failed release, client and server had different states | `locks.rs` |
//! | CURATOR-335, CURATOR-595 | permits of a semaphore leaked with the connections of their holders | `locks.rs` |
//! | CURATOR-527 | a change between the read and the watch was never notified | `locks.rs` |
//! | hiqlite 352 | an acquire cancelled at the moment of its grant blocked the lock forever | `locks.rs` |
//! | ZOOKEEPER-2355, 3144, 3145, 4837 | ephemeral nodes of expired sessions reappeared after a snapshot | `storage.rs` |

mod locks;
mod sessions;
mod storage;
