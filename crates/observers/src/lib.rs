//! Observers of a node: what happens to locks, sessions and znodes, brought to those who wait for it or look on.
//!
//! The apply loop of `lock-node` hands the events of each command to the observers, in the order of the log and while the state is locked. So
//! an observer that reads the state and subscribes in one go misses nothing, and is told nothing twice.
//!
//! | observer | what it does |
//! |---|---|
//! | [`hub`] | notifies watches on znodes, and waits for grants and for ends of contenders |
//! | [`hub::session_events`] | keeps the events of sessions for streams that come back |
//! | [`hub::happenings`] | keeps the latest events of all locks and sessions, for dashboards |
//! | [`tap`], [`history`] | write past holders of locks to the index of `lock-history`, by a thread |
//! | [`lock_metrics`] | counts grants, waits and holds, and how they end |
//!
//! Nothing waits for an observer: what it does not fetch is bounded, and it is told when something was missed. Nothing here is replicated.
//!
//! # What this crate must not know
//!
//! It knows the events of `znode-store`, and not how commands get there: no Raft, no peer, no leader, no HTTP. Files are written only by
//! `lock-history`.

pub mod config;
pub mod history;
pub mod hub;
pub mod lock_metrics;
pub mod tap;
