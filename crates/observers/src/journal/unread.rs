//! Place of the lock history in the journal: its next record, and the holds that the ring removed before the history read them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use lock_history::Position;
use znode_store::{Event, Store};

use super::{Journal, Record};

/// Maximum number of unread holds that the ring has removed: some seconds of a node's largest load, some 30 MB.
pub(super) const MAX_REMOVED: usize = 65_536;

/// Number of records that are read at a time: nothing is applied meanwhile.
const TAKEN_AT_ONCE: usize = 256;

/// Item for the lock history.
pub enum HistoryItem {
    /// A hold began or ended.
    Hold {
        /// Position.
        at: Position,
        /// Event.
        event: Event,
    },
    /// Events were removed before the history read them.
    Missed {
        /// Number of events.
        events: u64,
        /// Position of the last one.
        until: Position,
    },
    /// A snapshot replaced the state.
    Replaced {
        /// State before the snapshot. It takes a while to compare, and to drop.
        before: Box<Store>,
        /// Position of the new state.
        now: Position,
    },
}

/// Progress of the lock history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Number of the next record.
    pub next: u64,
    /// It has read everything that was written so far.
    pub is_all: bool,
    /// Nothing more will be written.
    pub is_end: bool,
}

/// Place of the lock history.
pub(super) struct Unread {
    /// Number of the next record.
    next: u64,
    /// Items before that record.
    removed: VecDeque<HistoryItem>,
    is_end: bool,
    /// Holds one wake-up.
    wake: SyncSender<()>,
}

impl Unread {
    pub(super) fn new() -> (Self, Receiver<()>) {
        let (wake, woken) = sync_channel(1);
        let unread = Self {
            next: 0,
            removed: VecDeque::new(),
            is_end: false,
            wake,
        };
        (unread, woken)
    }

    pub(super) fn wake(&self) {
        // A wake-up that waits already is enough, and a reader that is gone needs none.
        let _ = self.wake.try_send(());
    }

    /// Keeps a hold that the ring has removed, if it is unread. Beyond the bound it is counted as missed.
    pub(super) fn removed(&mut self, number: u64, record: Record) {
        if number < self.next || !record.is_of_hold() {
            return;
        }
        let at = record.position();
        match self.removed.len() < MAX_REMOVED {
            true => self.removed.push_back(HistoryItem::Hold {
                at,
                event: record.event,
            }),
            false => self.miss(at),
        }
    }

    fn miss(&mut self, at: Position) {
        match self.removed.back_mut() {
            Some(HistoryItem::Missed { events, until }) => (*events, *until) = (*events + 1, at),
            _ => self
                .removed
                .push_back(HistoryItem::Missed { events: 1, until: at }),
        }
    }

    /// Keeps the state that a snapshot replaced, if there is room, and returns it otherwise.
    pub(super) fn replaced(&mut self, before: Store, now: Position) -> Option<Store> {
        self.wake();
        if self.removed.len() >= MAX_REMOVED {
            self.miss(now);
            return Some(before);
        }
        let before = Box::new(before);
        self.removed.push_back(HistoryItem::Replaced { before, now });
        None
    }

    pub(super) fn end(&mut self) {
        self.is_end = true;
        self.wake();
    }
}

impl Record {
    fn position(&self) -> Position {
        Position {
            zxid: self.zxid.0,
            time_ms: self.time_ms,
        }
    }
}

/// Reader of the lock history. Without a reader, the journal stores nothing for it.
#[derive(Debug)]
pub struct HistoryReader {
    journal: Arc<Journal>,
    woken: Receiver<()>,
}

impl HistoryReader {
    pub(super) fn new(journal: Arc<Journal>, woken: Receiver<()>) -> Self {
        Self { journal, woken }
    }

    pub(crate) fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// Waits until there may be something to read, in the given time at most. Returns whether there may be.
    pub fn wait(&self, timeout: Duration) -> bool {
        self.woken.recv_timeout(timeout).is_ok()
    }

    /// Appends the next items, a bounded number of them, to `items`.
    pub fn take(&self, items: &mut Vec<HistoryItem>) -> Taken {
        let mut ring = self.journal.lock();
        let mut unread = ring
            .unread
            .take()
            .expect("it is there until the reader is dropped");
        let count = unread.removed.len().min(TAKEN_AT_ONCE);
        items.extend(unread.removed.drain(..count));
        if unread.removed.is_empty() {
            unread.removed.shrink_to(TAKEN_AT_ONCE);
            let records = ring.from(unread.next).take(TAKEN_AT_ONCE);
            unread.next = unread.next.max(ring.first()) + records.len() as u64;
            let holds = records.filter(|(_, record)| record.is_of_hold());
            items.extend(holds.map(|(_, record)| HistoryItem::Hold {
                at: record.position(),
                event: record.event.clone(),
            }));
        }
        let taken = Taken {
            next: unread.next,
            is_all: unread.removed.is_empty() && unread.next == ring.end(),
            is_end: unread.is_end,
        };
        ring.unread = Some(unread);
        taken
    }
}

impl Drop for HistoryReader {
    fn drop(&mut self) {
        self.journal.lock().unread = None;
    }
}
