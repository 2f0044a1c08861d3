//! Journal of the latest events of locks and sessions: a ring of records, each written once while its command is applied.
//!
//! Session streams, the event feed and the lock history read it, each from a place of its own. A reader that falls behind learns that records
//! were removed before it read them. A record takes the event over with its texts, and readers translate it. Every node writes the same
//! records at the same positions, so a client that loses one node goes on at another.
//!
//! The journal is neither replicated nor on disk. It knows no stream, no dashboard and no file.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use lock_history::Position;
use raft_log::sync::{Mutex, MutexGuard};
use znode_store::{
    ContenderEnd, Event, Hold, LockMode, SessionId, Store, ZnodeEventKind, Zxid, lock_of_contender,
};

use crate::config::SessionEventsConfig;

mod position;
mod unread;

pub use self::position::{EventPosition, NoPosition};
use self::unread::Unread;
pub use self::unread::{HistoryItem, HistoryReader, Taken};

/// Size of a record without its texts: the record itself, the hold that it shares with the state, and its share of the tables.
pub(crate) const EVENT_BYTES: usize = 384;

/// Maximum number of records for which memory is reserved in advance. Reserved memory that is not used yet takes no space.
const MAX_RESERVED: usize = 65_536;

/// Number of events of one command that are added before the oldest are removed. If a command has more, the ring grows once.
const ROOM_FOR_ONE_COMMAND: usize = 64;

/// Prefix of contenders' znodes.
const BELOW_LOCKS: &str = "/locks/";

/// Reader whose clients know positions. Each numbers the events of a command on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// Streams of sessions.
    Sessions,
    /// Event feed.
    Feed,
}

/// Event of a lock or a session.
#[derive(Debug)]
pub struct Record {
    /// Position of the command.
    pub zxid: Zxid,
    /// Time in milliseconds since 1970, by the log.
    pub time_ms: u64,
    /// Event.
    pub event: Event,
    /// Session whose streams deliver the event.
    pub session: Option<SessionId>,
    /// Number of events of the command so far, for each [`Reader`].
    numbers: [u32; 2],
    /// Memory that the record takes.
    bytes: u32,
}

impl Record {
    /// Returns the position of the event for a reader. An event that is not for the reader has the position of the one before.
    pub fn at(&self, reader: Reader) -> EventPosition {
        EventPosition::of_event(self.zxid, self.numbers[reader as usize])
    }

    fn is_of_hold(&self) -> bool {
        matches!(self.event, Event::HoldBegan(_) | Event::HoldEnded { .. })
    }
}

/// Journal of a node.
pub struct Journal(Mutex<Ring>);

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").finish_non_exhaustive()
    }
}

/// Records of the journal. They are numbered without gaps in the order in which they are written.
pub struct Ring {
    /// One piece of memory: a record is read again only when it is removed, long after it has left the processor's caches, and neighbours
    /// come back together.
    records: VecDeque<Record>,
    /// Number of the next record.
    end: u64,
    /// Position of what was removed last, for each [`Reader`]: everything after it is stored.
    complete_after: [EventPosition; 2],
    bytes: usize,
    max_records: usize,
    max_bytes: usize,
    /// Place of the lock history, if there is one.
    unread: Option<Unread>,
}

impl Journal {
    pub(crate) fn new(bounds: &SessionEventsConfig) -> Self {
        let (max_records, max_bytes) = (bounds.backlog, bounds.backlog_bytes);
        let reserved = max_records.min(max_bytes / EVENT_BYTES).min(MAX_RESERVED);
        Self(Mutex::new(Ring {
            records: VecDeque::with_capacity(reserved + ROOM_FOR_ONE_COMMAND),
            end: 0,
            complete_after: [EventPosition::all_of(Zxid(0)); 2],
            bytes: 0,
            max_records,
            max_bytes,
            unread: None,
        }))
    }

    /// Writes the events of one command, and calls `wake` with the session and the number of each record that a session's streams deliver.
    /// Returns whether there is something new for the event feed. Call it while the state is locked.
    pub(crate) fn write(
        &self,
        zxid: Zxid,
        time_ms: u64,
        events: &mut Vec<Event>,
        mut wake: impl FnMut(SessionId, u64),
    ) -> bool {
        // Most commands have nothing to write.
        let mut locked: Option<MutexGuard<'_, Ring>> = None;
        let (mut numbers, mut has_holds) = ([0; 2], false);
        let mut events = events.drain(..);
        while let Some(event) = events.next() {
            let before = locked.as_ref().and_then(|ring| ring.records.back());
            let Some(audience) = audience(&event, before, events.as_slice()) else {
                continue;
            };
            let session = match audience {
                Audience::Session(session) => Some(session),
                Audience::Feed | Audience::History => None,
            };
            numbers[Reader::Sessions as usize] += u32::from(session.is_some());
            numbers[Reader::Feed as usize] += u32::from(audience != Audience::History);
            let bytes = EVENT_BYTES + text_bytes(&event);
            let record = Record {
                zxid,
                time_ms,
                event,
                session,
                numbers,
                bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            };
            has_holds |= record.is_of_hold();
            let ring = locked.get_or_insert_with(|| self.0.lock());
            if let Some(session) = session {
                wake(session, ring.end);
            }
            ring.bytes += record.bytes as usize;
            ring.records.push_back(record);
            ring.end += 1;
        }
        if let Some(ring) = &mut locked {
            while ring.records.len() > ring.max_records || ring.bytes > ring.max_bytes {
                ring.remove_oldest();
            }
            if let Some(unread) = &ring.unread
                && has_holds
            {
                unread.wake();
            }
        }
        numbers[Reader::Feed as usize] > 0
    }

    /// Removes all records: the state `before` was replaced by one at `now`, and what happened between them is unknown. Returns `before`, unless the
    /// lock history takes it to compare the two.
    pub(crate) fn state_replaced(&self, before: Store, now: Position) -> Option<Store> {
        let mut ring = self.lock();
        while !ring.records.is_empty() {
            ring.remove_oldest();
        }
        ring.complete_after = [EventPosition::all_of(Zxid(now.zxid)); 2];
        // The replacement takes a number, as a record does.
        ring.end += 1;
        match &mut ring.unread {
            Some(unread) => unread.replaced(before, now),
            None => Some(before),
        }
    }

    /// Locks the journal. Keep it shortly: nothing is applied meanwhile.
    pub fn lock(&self) -> MutexGuard<'_, Ring> {
        self.0.lock()
    }

    /// Begins to keep what the lock history has not read yet. Call it before anything is written.
    pub fn read_history(self: &Arc<Self>) -> HistoryReader {
        let (unread, woken) = Unread::new();
        self.lock().unread = Some(unread);
        HistoryReader::new(self.clone(), woken)
    }

    /// Ends the lock history: nothing more is written.
    pub(crate) fn end_history(&self) {
        if let Some(unread) = &mut self.lock().unread {
            unread.end();
        }
    }
}

impl Ring {
    /// Returns the number of the oldest record.
    pub fn first(&self) -> u64 {
        self.end - self.records.len() as u64
    }

    /// Returns the number of the next record.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the memory of the records in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the records from `number` on, with their numbers.
    pub fn from(&self, number: u64) -> impl DoubleEndedIterator<Item = (u64, &Record)> + ExactSizeIterator {
        let first = number.clamp(self.first(), self.end);
        let skipped = (first - self.first()) as usize;
        let numbered = self.records.range(skipped..).enumerate();
        numbered.map(move |(place, record)| (first + place as u64, record))
    }

    /// Returns the records of a session from `number` on.
    pub fn of_session(&self, session: SessionId, number: u64) -> impl Iterator<Item = (u64, &Record)> {
        self.from(number)
            .filter(move |(_, record)| record.session == Some(session))
    }

    /// Returns the number of the first record after a position.
    pub fn first_after(&self, reader: Reader, position: EventPosition) -> u64 {
        let before = self
            .records
            .partition_point(|record| record.at(reader) <= position);
        self.first() + before as u64
    }

    /// Returns the position after which nothing is missing from record `number` on.
    pub fn complete_after(&self, reader: Reader, number: u64) -> EventPosition {
        match number.checked_sub(self.first() + 1) {
            Some(before) => self.records[before as usize].at(reader),
            None => self.complete_after[reader as usize],
        }
    }

    fn remove_oldest(&mut self) {
        let number = self.first();
        let record = self.records.pop_front().expect("there is a record");
        self.bytes -= record.bytes as usize;
        self.complete_after = [record.at(Reader::Sessions), record.at(Reader::Feed)];
        if let Some(unread) = &mut self.unread {
            unread.removed(number, record);
        }
    }
}

/// Readers that an event is for. The lock history reads all beginnings and ends of holds, whatever else they are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Audience {
    /// Streams of the session, and the event feed.
    Session(SessionId),
    /// Event feed.
    Feed,
    /// Lock history alone.
    History,
}

/// Returns the readers of an event; `None` if no reader needs it, or another event says the same. `before` is the record before it in the
/// same command, and `rest` the events after it.
fn audience(event: &Event, before: Option<&Record>, rest: &[Event]) -> Option<Audience> {
    match event {
        Event::HoldBegan(hold) => Some(Audience::Session(hold.session)),
        // The session still holds, with a new token, which the next event has.
        Event::HoldEnded {
            how: ContenderEnd::Upgraded,
            ..
        } => Some(Audience::History),
        Event::HoldEnded { hold, .. } => Some(Audience::Session(hold.session)),
        Event::ContenderEnded {
            session,
            lock,
            holder,
            ..
        } => {
            // The hold of this contender has ended, which the event before has.
            let was_held = before.is_some_and(|before| {
                matches!(&before.event, Event::HoldEnded { hold, .. }
                    if *hold.holder == **holder && hold.lock == *lock)
            });
            (!was_held).then_some(Audience::Session(*session))
        }
        // An upgrade is a grant.
        Event::ModeChanged { grant, .. } if grant.mode == LockMode::Exclusive => None,
        Event::ModeChanged { session, .. }
        | Event::RevokeRequested { session, .. }
        | Event::SessionEnded { session, .. } => Some(Audience::Session(*session)),
        Event::Znode(changed)
            if changed.kind == ZnodeEventKind::Created && changed.path.as_str().starts_with(BELOW_LOCKS) =>
        {
            let holder = changed.path.name();
            // A contender that is granted at once has not waited.
            let holds = |event: &Event| matches!(event, Event::HoldBegan(hold) if *hold.holder == *holder);
            let waits = !rest.iter().any(holds) && lock_of_contender(&changed.path).is_some();
            waits.then_some(Audience::Feed)
        }
        Event::RevokeAnswered { .. }
        | Event::LockClosed { .. }
        | Event::LockOpened(_)
        | Event::SessionOpened(_)
        | Event::AccessChanged(_) => Some(Audience::Feed),
        Event::Znode(_)
        // The beginning of the hold has the same, as for grants without a wait.
        | Event::Granted { .. }
        | Event::UpgradeWithdrawn { .. }
        | Event::SoftQuotaPassed { .. }
        | Event::SessionReconnected { .. } => None,
    }
}

/// Returns the memory that the texts of an event take.
fn text_bytes(event: &Event) -> usize {
    match event {
        Event::HoldBegan(hold) => hold_bytes(hold),
        Event::HoldEnded { hold, how, by } => {
            let reason = match how {
                ContenderEnd::Broken { by, reason } => by.len() + reason.len(),
                _ => 0,
            };
            hold_bytes(hold) + reason + by.as_ref().map_or(0, |by| by.len())
        }
        Event::ModeChanged { grant, .. } => grant.lock.as_str().len() + grant.holder.len(),
        Event::ContenderEnded { lock, holder, .. } => lock.as_str().len() + holder.len(),
        Event::RevokeRequested {
            lock,
            holder,
            by,
            reason,
            ..
        } => lock.as_str().len() + holder.len() + by.len() + reason.len(),
        Event::RevokeAnswered {
            lock, holder, answer, ..
        } => lock.as_str().len() + holder.len() + answer.len(),
        Event::Znode(changed) => changed.path.as_str().len(),
        Event::LockClosed { lock, .. } | Event::LockOpened(lock) => lock.as_str().len(),
        _ => 0,
    }
}

fn hold_bytes(hold: &Hold) -> usize {
    let texts = [
        hold.lock.as_str(),
        &hold.holder,
        &hold.owner,
        &hold.note,
        hold.address.as_str(),
    ];
    texts.map(str::len).iter().sum()
}

#[cfg(test)]
mod tests;
