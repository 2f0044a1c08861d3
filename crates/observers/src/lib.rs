//! Observers of a node: they bring events of locks, sessions and znodes to waiting clients, streams, dashboards, the lock history and metrics.
//!
//! The apply loop of `lock-node` hands the events of each command to the observers, in the order of the log and while the state is locked. So
//! an observer that reads the state and subscribes in one go misses nothing, and gets nothing twice.
//!
//! | observer | what it does |
//! |---|---|
//! | [`notifier`] | notifies watches on znodes, and waits for grants and for ends of contenders |
//! | [`event_metrics`] | counts grants, waits, holds and sessions, and how they end |
//! | [`journal`] | stores the latest events of locks and sessions, once, for the three readers below |
//! | [`session_events`] | streams of the events of sessions, which resume |
//! | [`event_feed`] | the latest events of all locks and sessions, for dashboards |
//! | [`history`] | writes past holders of locks to the index of `lock-history`, by a thread |
//!
//! [`Observers::command_applied`] has the order in which they get an applied command.
//!
//! Nothing waits for an observer: what it does not fetch is bounded, and it learns when something was missed. Nothing here is replicated.
//!
//! # What this crate must not know
//!
//! It knows the events of `znode-store`, and not how commands get there: no Raft, no peer, no leader, no HTTP. Files are written only by
//! `lock-history`.

pub mod config;
pub mod notifier;
pub mod event_metrics;
pub mod journal;
pub mod session_events;
pub mod event_feed;
pub mod history;
mod observers;

pub use self::observers::{Applied, AppliedCommand, Observers, ObserversConfig};
