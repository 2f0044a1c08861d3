//! What has happened lately to all locks and sessions, kept for a while for people who look on. Every node keeps the same at the
//! same positions. Nobody is owed a thing here: whoever looks too seldom is told that there was more.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::watch;
use znode_store::{
    AccessChange, Event, HolderId, LockName, SessionId, ZPath, ZnodeEventKind, Zxid, lock_of_contender,
};

use super::session_events::{EventPosition, SessionEvent, translate};
use raft_log::sync::Mutex;

/// How many are kept. A page that is opened shows the last hundred; the rest is for those who ask for few of many locks.
pub const MAX_HAPPENINGS: usize = 8192;

/// What one command does is put in before the oldest go. Few do more, and then there is room for more from then on.
const ROOM_FOR_ONE_COMMAND: usize = 64;

/// How many may look on at a node: people with a page open, some of them with several. Each is told a few times a second at most.
pub const MAX_ONLOOKERS: usize = 64;

/// Where contenders are.
const BELOW_LOCKS: &str = "/locks/";

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Happening {
    /// Where it stands in the log, and among what its command has done.
    pub at: EventPosition,
    /// When it happened, in milliseconds since 1970, by the log.
    pub time_ms: u64,
    /// What.
    pub what: Happened,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    /// Somebody waits for a lock from now on.
    Queued {
        /// The contender's znode, of which the last part is the holder.
        contender: ZPath,
    },
    /// What is told to the session whose it is.
    ToSession {
        /// Whose it is.
        session: SessionId,
        /// What.
        event: SessionEvent,
    },
    /// A holder that was asked to give up has said something.
    RevokeAnswered {
        /// Whose it is.
        session: SessionId,
        /// Of which lock.
        lock: LockName,
        /// Which one.
        holder: HolderId,
        /// What it said.
        answer: Arc<str>,
    },
    /// A holder's session expired, and nobody is let in for a while.
    Closed {
        /// Which lock.
        lock: LockName,
        /// For how long.
        delay_ms: u32,
    },
    /// That time is over.
    Opened(LockName),
    /// A session was opened.
    SessionOpened(SessionId),
    /// Who may do what was changed.
    AccessChanged(Arc<AccessChange>),
}

impl Happened {
    /// The lock that it is about.
    pub fn lock(&self) -> Option<LockName> {
        match self {
            Self::Queued { contender } => lock_of_contender(contender),
            Self::ToSession { event, .. } => match event {
                SessionEvent::Granted(hold) | SessionEvent::Lost { hold, .. } => Some(hold.lock.clone()),
                SessionEvent::Downgraded(grant) => Some(grant.lock.clone()),
                SessionEvent::LeftQueue { lock, .. } | SessionEvent::RevokeRequested { lock, .. } => {
                    Some(lock.clone())
                }
                SessionEvent::Ended { .. } => None,
            },
            Self::RevokeAnswered { lock, .. } | Self::Closed { lock, .. } | Self::Opened(lock) => {
                Some(lock.clone())
            }
            Self::SessionOpened(_) | Self::AccessChanged(_) => None,
        }
    }
}

/// Some of what has happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Happenings {
    /// The latest of it, in order.
    pub latest: Vec<Happening>,
    /// Whether there was more since what was told last.
    pub more: bool,
}

/// Too many look on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{MAX_ONLOOKERS} look on at this node, and no more may")]
pub struct TooManyOnlookers;

/// What is kept.
#[derive(Debug)]
pub struct Recent {
    kept: Mutex<Kept>,
    /// How often something was added, or the state was replaced; onlookers wait for it.
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
struct Kept {
    /// Of what happened after this, everything is here.
    complete_after: EventPosition,
    /// In one piece: each is looked at again only when it goes, long after it has left the processor's caches, and what lies side by side
    /// comes back together.
    happenings: VecDeque<Happening>,
}

impl Recent {
    pub(super) fn new() -> Self {
        Self {
            kept: Mutex::new(Kept {
                complete_after: EventPosition::all_of(Zxid(0)),
                // Room that grew piece by piece would leave as much behind that nobody uses. Untouched, it takes no memory.
                happenings: VecDeque::with_capacity(MAX_HAPPENINGS + ROOM_FOR_ONE_COMMAND),
            }),
            changes: watch::Sender::new(0),
        }
    }

    /// Keeps what one command did. Call it while the state is locked.
    pub fn happened(&self, zxid: Zxid, time_ms: u64, events: &[Event]) {
        let mut numbers = 1..;
        let mut new = events.iter().enumerate().filter_map(|(place, event)| {
            let before = place.checked_sub(1).map(|before| &events[before]);
            let what = what(event, before, events)?;
            let at = EventPosition::of_event(zxid, numbers.next()?);
            Some(Happening { at, time_ms, what })
        });
        let Some(first) = new.next() else {
            return;
        };
        let mut kept = self.kept.lock();
        kept.happenings.push_back(first);
        kept.happenings.extend(new);
        while kept.happenings.len() > MAX_HAPPENINGS {
            let gone = kept.happenings.pop_front().expect("there are too many");
            kept.complete_after = gone.at;
        }
        drop(kept);
        self.changed();
    }

    /// The state was replaced by one that stands at `zxid`: what happened before is not known.
    pub(super) fn state_replaced(&self, zxid: Zxid) {
        let mut kept = self.kept.lock();
        kept.complete_after = EventPosition::all_of(zxid);
        kept.happenings.clear();
        drop(kept);
        self.changed();
    }

    /// Wakes those who look on.
    pub fn changed(&self) {
        // Nobody looks on most of the time. Whoever begins to from now on sees what was kept just now.
        if self.changes.receiver_count() > 0 {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }

    /// Looks on. Each look is at what came since the one before.
    pub fn look_on(&self) -> Result<watch::Receiver<u64>, TooManyOnlookers> {
        match self.changes.receiver_count() < MAX_ONLOOKERS {
            true => Ok(self.changes.subscribe()),
            false => Err(TooManyOnlookers),
        }
    }

    /// The latest `count` of what happened after `after` and `is_meant`. `None`: as many as there are.
    pub fn after(
        &self,
        after: Option<EventPosition>,
        count: usize,
        is_meant: impl Fn(&Happening) -> bool,
    ) -> Happenings {
        let kept = self.kept.lock();
        let first = after.map_or(0, |after| {
            kept.happenings.partition_point(|happening| happening.at <= after)
        });
        let mut meant = kept
            .happenings
            .range(first..)
            .rev()
            .filter(|happening| is_meant(happening));
        let mut latest: Vec<_> = meant.by_ref().take(count).cloned().collect();
        latest.reverse();
        let was_let_go = after.is_some_and(|after| after < kept.complete_after);
        Happenings {
            more: was_let_go || meant.next().is_some(),
            latest,
        }
    }
}

/// What an event is to those who look on; `None`: nothing, or nothing that another one does not say.
fn what(event: &Event, before: Option<&Event>, all: &[Event]) -> Option<Happened> {
    match event {
        Event::Znode(changed)
            if changed.kind == ZnodeEventKind::Created && changed.path.as_str().starts_with(BELOW_LOCKS) =>
        {
            let holder = changed.path.name();
            // Whoever is let in at once has not waited.
            let holds = |event: &Event| matches!(event, Event::HoldBegan(hold) if *hold.holder == *holder);
            let waits = !all.iter().any(holds) && lock_of_contender(&changed.path).is_some();
            let contender = changed.path.clone();
            waits.then_some(Happened::Queued { contender })
        }
        Event::RevokeAnswered {
            session,
            lock,
            holder,
            answer,
        } => Some(Happened::RevokeAnswered {
            session: *session,
            lock: lock.clone(),
            holder: holder.clone(),
            answer: answer.clone(),
        }),
        Event::LockClosed { lock, delay_ms } => Some(Happened::Closed {
            lock: lock.clone(),
            delay_ms: *delay_ms,
        }),
        Event::LockOpened(lock) => Some(Happened::Opened(lock.clone())),
        Event::SessionOpened(session) => Some(Happened::SessionOpened(*session)),
        Event::AccessChanged(change) => Some(Happened::AccessChanged(change.clone())),
        other => translate(other, before).map(|(session, event)| Happened::ToSession { session, event }),
    }
}

#[cfg(test)]
mod tests;
