//! All observers of a node, and the order in which they get what was applied.

use std::sync::Arc;
use std::time::Duration;

use lock_history::Position;
use znode_store::{
    Command, Event, LeaseChange, LockCommand, NewLease, Outcome, SessionId, Store, WithdrawCause, Zxid,
};

use crate::config::{SessionEventsConfig, WatchConfig};
use crate::event_feed::EventFeed;
use crate::event_metrics::EventMetrics;
use crate::journal::Journal;
use crate::notifier::Notifier;
use crate::session_events::SessionEvents;

/// A command that was applied: all that observers get to know of it.
#[derive(Debug)]
pub struct Applied {
    /// Position of the command.
    pub position: Zxid,
    /// Facts of the command that its events do not have.
    pub command: AppliedCommand,
    /// Outcome.
    pub outcome: Outcome,
    /// Changes of the state, in order.
    pub events: Vec<Event>,
}

/// Facts of a command that its events do not have. The state machine consumes the command itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppliedCommand {
    /// It opens a session or a lease with this timeout.
    OpensSession(Duration),
    /// It notes heartbeats of these sessions.
    NotesHeartbeats(Vec<SessionId>),
    /// It withdraws waits whose time is over.
    TimesOut,
    /// Any other command.
    Other,
}

impl From<&Command> for AppliedCommand {
    fn from(command: &Command) -> Self {
        match command {
            Command::OpenSession { timeout_ms, .. }
            | Command::Lock(LockCommand::AcquireBounded {
                lease: Some(NewLease { timeout_ms, .. }),
                ..
            })
            | Command::Lock(LockCommand::ChangeLease {
                change:
                    LeaseChange::Replace {
                        new: NewLease { timeout_ms, .. },
                        ..
                    },
                ..
            }) => Self::OpensSession(Duration::from_millis(u64::from(*timeout_ms))),
            Command::NoteHeartbeats { sessions, .. } => Self::NotesHeartbeats(sessions.clone()),
            Command::Lock(
                LockCommand::Withdraw {
                    cause: WithdrawCause::TimedOut,
                    ..
                }
                | LockCommand::WithdrawMany {
                    cause: WithdrawCause::TimedOut,
                    ..
                },
            ) => Self::TimesOut,
            _ => Self::Other,
        }
    }
}

/// All observers of a node.
pub struct Observers {
    /// Watches, and waits for grants.
    pub notifier: Arc<Notifier>,
    /// Metrics of locks and sessions.
    pub metrics: EventMetrics,
    /// Latest events of all locks and sessions, for the streams, the feed and the lock history.
    pub journal: Arc<Journal>,
    /// Streams of the events of sessions.
    pub session_events: Arc<SessionEvents>,
    /// Event feed.
    pub feed: EventFeed,
}

/// Settings of the observers.
#[derive(Debug, Clone, Default)]
pub struct ObserversConfig {
    /// Bounds of watches.
    pub watches: WatchConfig,
    /// Bounds of the journal and of session streams.
    pub events: SessionEventsConfig,
    /// Prefixes of locks that are counted separately.
    pub lock_prefixes: Vec<String>,
}

impl Observers {
    /// Returns observers that have seen nothing. The seed must be random.
    pub fn new(config: &ObserversConfig, hash_seed: u64) -> Self {
        let journal = Arc::new(Journal::new(&config.events));
        Self {
            notifier: Arc::new(Notifier::new(&config.watches, hash_seed)),
            metrics: EventMetrics::new(&config.lock_prefixes),
            session_events: Arc::new(SessionEvents::new(config.events.clone(), journal.clone())),
            feed: EventFeed::new(journal.clone()),
            journal,
        }
    }

    /// Brings an applied command to all observers, in this order. `store` is the state after the command, and is locked. `counts` says
    /// whether this node leads, and so counts what happens in the whole cluster. The journal takes the events.
    ///
    /// A notice is queued before anybody can read the change, and before the command is answered.
    pub fn command_applied(&self, applied: &mut Applied, store: &Store, counts: bool) {
        if applied.events.is_empty() {
            return;
        }
        self.notifier
            .dispatch(applied.position, &applied.events, store.visibility());
        // Metrics are no reader of the journal: they need the state (since when a contender waited), and no gap may lose a count.
        if counts {
            let timed_out = applied.command == AppliedCommand::TimesOut;
            self.metrics.count(store, timed_out, &applied.events);
        }
        let wake = |session, number| self.session_events.written(session, number);
        let (zxid, time_ms) = (applied.position, store.time_ms());
        if self.journal.write(zxid, time_ms, &mut applied.events, wake) {
            self.feed.changed();
        }
    }

    /// Handles a state `before` that was replaced by a snapshot's, which is locked. Returns `before`, unless the lock history takes it.
    #[must_use = "a large state should be dropped where it holds nobody up"]
    pub fn state_replaced(&self, before: Store, now: &Store) -> Option<Store> {
        self.notifier.state_replaced(&before, now);
        let position = Position {
            zxid: now.zxid().0,
            time_ms: now.time_ms(),
        };
        let before = self.journal.state_replaced(before, position);
        self.session_events.state_replaced();
        self.feed.changed();
        before
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

    /// Ends the lock history: nothing more will be applied.
    pub fn end_history(&self) {
        self.journal.end_history();
    }
}
