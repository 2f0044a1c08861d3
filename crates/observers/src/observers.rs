//! All observers of a node, and the order in which they get the events of a command.

use std::sync::Arc;

use znode_store::{Command, Event, Store, Zxid};

use crate::config::{SessionEventsConfig, WatchConfig};
use crate::event_feed::EventFeed;
use crate::event_metrics::{EventMetrics, times_out};
use crate::history_channel::{AppliedHolds, HoldEventSender};
use crate::notifier::Notifier;
use crate::session_events::SessionEvents;

/// All observers of a node.
pub struct Observers {
    /// Watches, and waits for grants.
    pub notifier: Arc<Notifier>,
    /// Events of sessions, and their streams.
    pub session_events: Arc<SessionEvents>,
    /// Latest events of all locks and sessions.
    pub feed: EventFeed,
    /// Metrics of locks and sessions.
    pub metrics: EventMetrics,
    /// Channel to the lock history.
    history: HoldEventSender,
}

/// Settings of the observers.
#[derive(Debug, Clone, Default)]
pub struct ObserversConfig {
    /// Bounds of watches.
    pub watches: WatchConfig,
    /// Bounds of session events.
    pub events: SessionEventsConfig,
    /// Prefixes of locks that are counted separately.
    pub lock_prefixes: Vec<String>,
}

/// Entry that is being applied, as far as observers are concerned.
pub struct ObservedEntry {
    /// True at the leader, which counts the events of the whole cluster.
    counts: bool,
    holds: Option<AppliedHolds>,
}

impl ObservedEntry {
    /// Returns whether a command of this entry withdraws waits whose time is over, and is counted.
    pub fn times_out(&self, command: &Command) -> bool {
        self.counts && times_out(command)
    }
}

impl Observers {
    /// Returns observers that have seen nothing. `history` gets the beginnings and ends of holds. The seed must be random.
    pub fn new(config: &ObserversConfig, history: HoldEventSender, hash_seed: u64) -> Self {
        Self {
            notifier: Arc::new(Notifier::new(&config.watches, hash_seed)),
            session_events: Arc::new(SessionEvents::new(config.events.clone())),
            feed: EventFeed::new(),
            metrics: EventMetrics::new(&config.lock_prefixes),
            history,
        }
    }

    /// Begins an entry. `leads` says whether this node leads. The state is locked from here to [`Observers::entry_applied`].
    pub fn begin_entry(&self, store: &Store, leads: bool) -> ObservedEntry {
        ObservedEntry {
            counts: leads,
            holds: self.history.collect(store),
        }
    }

    /// Brings the events of an applied command to all observers, in this order. `store` is the state after the command, and `timed_out` the
    /// result of [`ObservedEntry::times_out`].
    ///
    /// A notice is queued before anybody can read the change, and before the command is answered.
    pub fn command_applied(
        &self,
        entry: &mut ObservedEntry,
        zxid: Zxid,
        store: &Store,
        timed_out: bool,
        events: &[Event],
    ) {
        if events.is_empty() {
            return;
        }
        let time_ms = store.time_ms();
        self.notifier.dispatch(zxid, events, store.visibility());
        self.session_events.add(zxid, time_ms, events);
        self.feed.add(zxid, time_ms, events);
        if entry.counts {
            self.metrics.count(store, timed_out, events);
        }
        if let Some(holds) = &mut entry.holds {
            holds.follow(zxid.0, time_ms, events);
        }
    }

    /// Ends an entry.
    pub fn entry_applied(&self, entry: ObservedEntry, store: &Store) {
        self.history.applied(entry.holds, store);
    }

    /// Handles a state that was replaced by a snapshot's. Call it while the state is locked.
    pub fn state_replaced(&self, before: &Store, now: &Store) {
        self.session_events.state_replaced(now.zxid());
        self.feed.state_replaced(now.zxid());
        self.notifier.state_replaced(before, now);
    }

    /// Sends the former state to the lock history, which compares it with the present one. Returns it if it was not sent.
    #[must_use = "a large state should be dropped where it holds nobody up"]
    pub fn hand_over_former_state(&self, before: Store, zxid: u64, time_ms: u64) -> Option<Store> {
        self.history.replaced(before, zxid, time_ms)
    }

    /// Returns whether a local client waits for events, or is connected and may read at any time.
    pub fn are_awaited(&self) -> bool {
        self.notifier.is_awaited() || self.session_events.are_followed()
    }

    /// Ends all waits and streams, and those that begin later: the node stops.
    pub fn end_waits(&self) {
        self.session_events.stop();
        self.notifier.stop();
    }

    /// Ends the hold events: nothing more will be applied.
    pub fn end_history(&self) {
        self.history.stop();
    }
}
