//! Lock history of this node: a thread that reads the journal and writes holds to a [`lock_history::Index`], and queries of it. A failure
//! of the index affects nothing but history.
//!
//! The state machine decides what a record says, and `lock_history` how it is stored.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lock_history::{HistoryGap, HistoryLimits, HoldRecord, Index, IndexError, Position};
use parking_lot::{Condvar, Mutex};
use znode_store::{Event, Hold, LockName, Store};

use crate::journal::{HistoryItem, HistoryReader, Journal};

/// Directory of the index in the data directory.
pub const HISTORY_DIR: &str = "history";

/// Time that the thread waits after the first event for more. So the apply loop wakes it at most this often. A query waits as long.
const GATHER: Duration = Duration::from_millis(50);

/// Interval at which what was read is written. A process that is killed may lose this much history, and makes it again from its log.
const TICK: Duration = Duration::from_secs(1);

/// Interval at which expired records are removed.
const AGE_EVERY: Duration = Duration::from_secs(60);

/// Time after the first failure until the index is opened again. It doubles with each failure.
const FIRST_RETRY: Duration = Duration::from_millis(100);

/// Maximum of that time. A disk may be full for hours.
const LAST_RETRY: Duration = Duration::from_secs(30);

/// Maximum time that a query waits until the index has what the state has. It usually takes [`GATHER`].
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum time that a stopping node waits for the index.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Number of holders that are looked up in the state at a time: some microseconds in which nothing is applied.
const LOOKED_UP_AT_ONCE: usize = 64;

/// Page of a lock's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockHistory {
    /// Holds, the latest first.
    pub entries: Vec<HistoryEntry>,
    /// Token before which the next page begins; `None` on the last page.
    pub next_before: Option<u64>,
    /// Periods within this page in which records may be missing.
    pub gaps: Vec<HistoryGap>,
    /// Position up to which records were removed.
    pub since: Position,
}

/// Hold in the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HistoryEntry {
    /// Present hold.
    Open(Hold),
    /// Past hold.
    Over(HoldRecord),
}

impl HistoryEntry {
    /// Returns the hold.
    pub fn hold(&self) -> &Hold {
        match self {
            Self::Open(hold) => hold,
            Self::Over(record) => &record.hold,
        }
    }
}

/// Reason why the history cannot be read now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HistoryUnavailable(pub String);

impl HistoryUnavailable {
    fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// State that knows the present holders of locks.
pub trait Holders: Send + Sync {
    /// Returns of each hold whether it still exists.
    fn still_hold(&self, holds: &[Arc<Hold>]) -> Vec<bool>;

    /// Returns the position of the state. The journal has all events up to it.
    fn position(&self) -> Position;
}

/// Handle of the history: queries, and the end of its thread.
pub struct History {
    shared: Arc<Shared>,
    journal: Arc<Journal>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Number of the journal's record up to which the thread has read.
    taken: Mutex<u64>,
    took: Condvar,
}

#[derive(Default)]
enum State {
    /// The thread has not opened the index yet.
    #[default]
    Opening,
    Open(Box<Index>),
    /// The index cannot be used now; the reason.
    Paused(String),
}

impl History {
    /// Starts the thread, which writes the holds of `reader` to `dir`. `owner` is the id of the data directory.
    pub fn start(
        dir: PathBuf,
        owner: [u8; 16],
        bounds: HistoryLimits,
        reader: HistoryReader,
        holders: Weak<dyn Holders>,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let journal = reader.journal().clone();
        let keeper = HistoryWriter {
            dir,
            owner,
            bounds,
            holders,
            shared: shared.clone(),
            told: Position::default(),
            flushed: Instant::now(),
            aged: None,
            failures: 0,
            retry_at: Instant::now(),
        };
        let thread = std::thread::Builder::new()
            .name("lock-history".to_owned())
            .spawn(move || {
                let shared = keeper.shared.clone();
                let ran = lock_history::contained(|| {
                    keeper.run(&reader);
                    Ok(())
                });
                if let Err(error) = ran {
                    tracing::error!(%error, "the lock history has ended by a mistake of its own");
                    *shared.state.lock() = State::Paused(error.to_string());
                }
                shared.set_taken(u64::MAX);
            })?;
        Ok(Self {
            shared,
            journal,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Returns how far the journal is written. Call it while the state is locked.
    pub fn written(&self) -> u64 {
        self.journal.lock().end()
    }

    /// Returns a page of the past and present holders of a lock, before a token. `holds` are the holders when `written` was read. Blocks.
    pub fn page(
        &self,
        lock: &LockName,
        before: Option<u64>,
        count: usize,
        holds: Vec<Arc<Hold>>,
        written: u64,
    ) -> Result<LockHistory, HistoryUnavailable> {
        self.shared.wait_taken(written)?;
        let mut state = self.shared.state.lock();
        let index = match &mut *state {
            State::Open(index) => index,
            State::Opening => return Err(HistoryUnavailable::new("the lock history is being opened")),
            State::Paused(reason) => {
                return Err(HistoryUnavailable::new(format!(
                    "the lock history pauses: {reason}"
                )));
            }
        };
        let page = index.page(lock, before, count);
        let page =
            page.map_err(|error| HistoryUnavailable::new(format!("the lock history failed: {error}")))?;
        let since = page.since;
        let gaps = page.gaps.clone();
        let open = holds.into_iter().map(|hold| {
            let since_ms = hold.since_ms.or_else(|| index.since_of(&hold));
            Hold {
                since_ms,
                ..Hold::clone(&hold)
            }
        });
        let (entries, next_before) = merge(page.records, page.next_before, open.collect(), before, count);
        Ok(LockHistory {
            entries,
            next_before,
            gaps,
            since,
        })
    }

    /// Waits until the thread has ended, in bounded time. [`Observers::end_history`](crate::Observers::end_history) must have been called before. Blocks.
    pub fn stop(&self) {
        let Some(thread) = self.thread.lock().take() else {
            return;
        };
        let deadline = Instant::now() + STOP_TIMEOUT;
        let mut taken = self.shared.taken.lock();
        while *taken != u64::MAX {
            if self.shared.took.wait_until(&mut taken, deadline).timed_out() {
                tracing::warn!("the lock history does not end; its last records may be missing");
                return;
            }
        }
        drop(taken);
        if thread.join().is_err() {
            tracing::warn!("the thread of the lock history has panicked");
        }
    }
}

impl Shared {
    fn wait_taken(&self, written: u64) -> Result<(), HistoryUnavailable> {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let mut taken = self.taken.lock();
        while *taken < written {
            if self.took.wait_until(&mut taken, deadline).timed_out() {
                return Err(HistoryUnavailable::new("the lock history is behind"));
            }
        }
        Ok(())
    }

    fn set_taken(&self, next: u64) {
        *self.taken.lock() = next;
        self.took.notify_all();
    }
}

/// Merges present holders into the records, the latest first, and cuts the page off after `count`, but not between two entries with one
/// token.
fn merge(
    records: Vec<HoldRecord>,
    next_before: Option<u64>,
    holds: Vec<Hold>,
    before: Option<u64>,
    count: usize,
) -> (Vec<HistoryEntry>, Option<u64>) {
    // A hold that has ended since the state was read is a record by now.
    let is_over = |hold: &Hold| {
        records.iter().any(|record| {
            record.hold.fencing_token == hold.fencing_token && record.hold.holder == hold.holder
        })
    };
    let first = next_before.unwrap_or(0);
    let on_page = |hold: &Hold| {
        hold.fencing_token.0 >= first && before.is_none_or(|before| hold.fencing_token.0 < before)
    };
    let mut entries: Vec<HistoryEntry> = holds
        .into_iter()
        .filter(|hold| on_page(hold) && !is_over(hold))
        .map(HistoryEntry::Open)
        .collect();
    entries.extend(records.into_iter().map(HistoryEntry::Over));
    let place = |entry: &HistoryEntry| (entry.hold().fencing_token.0, entry.hold().holder.clone());
    entries.sort_by_key(|entry| std::cmp::Reverse(place(entry)));
    let token = |entry: &HistoryEntry| entry.hold().fencing_token.0;
    let cut = (count..entries.len()).find(|&at| token(&entries[at]) != token(&entries[at - 1]));
    match cut {
        Some(at) => {
            entries.truncate(at);
            let last = token(&entries[at - 1]);
            (entries, Some(last))
        }
        None => (entries, next_before),
    }
}

/// State of the thread.
struct HistoryWriter {
    dir: PathBuf,
    owner: [u8; 16],
    bounds: HistoryLimits,
    holders: Weak<dyn Holders>,
    shared: Arc<Shared>,
    /// Position up to which everything was read, stored or not.
    told: Position,
    flushed: Instant,
    aged: Option<Instant>,
    /// Number of failures in a row to open the index.
    failures: u32,
    retry_at: Instant,
}

impl HistoryWriter {
    fn run(mut self, reader: &HistoryReader) {
        let mut items = Vec::new();
        loop {
            self.reopen();
            let is_idle = !reader.wait(TICK);
            if !is_idle {
                std::thread::sleep(GATHER);
            }
            // Everything up to here is in the journal, and is read below.
            let until = self.holders.upgrade().map(|holders| holders.position());
            let taken = loop {
                let taken = reader.take(&mut items);
                items.drain(..).for_each(|item| self.take(item));
                if taken.is_all {
                    break taken;
                }
            };
            if let Some(until) = until.filter(|until| until.zxid > self.told.zxid) {
                self.told = until;
            }
            let told = self.told;
            self.attempt(|index| {
                index.advance_to(told);
                Ok(())
            });
            self.shared.set_taken(taken.next);
            if taken.is_end {
                break;
            }
            self.tidy(is_idle);
        }
        let state = std::mem::replace(
            &mut *self.shared.state.lock(),
            State::Paused("this node stops".into()),
        );
        if let State::Open(index) = state
            && let Err(error) = index.shut()
        {
            tracing::warn!(%error, "the end of the lock history could not be written");
        }
    }

    fn take(&mut self, item: HistoryItem) {
        let told = self.told;
        match item {
            HistoryItem::Hold { at, event } => {
                self.told = at;
                self.attempt(|index| match &event {
                    Event::HoldEnded { hold, how, by } => index.ended(hold, at, how, by.as_deref()),
                    Event::HoldBegan(hold) => {
                        index.began(hold);
                        Ok(())
                    }
                    _ => Ok(()),
                });
            }
            HistoryItem::Missed { events, until } => {
                tracing::warn!(
                    events,
                    after = told.zxid,
                    until = until.zxid,
                    "the lock history has missed something"
                );
                self.advance_to(told);
                if let Some(gap) = self.miss(until) {
                    self.close_open(gap);
                }
            }
            HistoryItem::Replaced { before, now } => {
                self.advance_to(told);
                self.replaced(&before, now);
            }
        }
    }

    /// Marks everything up to here as recorded.
    fn advance_to(&mut self, told: Position) {
        self.attempt(|index| {
            index.advance_to(told);
            Ok(())
        });
    }

    /// Records a gap between two states, and closes the holds that have ended in it.
    fn replaced(&mut self, before: &Store, until: Position) {
        let not_before = Position {
            zxid: before.zxid().0,
            time_ms: before.time_ms(),
        };
        let Some(gap) = self.miss(until) else { return };
        let mut after = None;
        loop {
            let locks = before.locks("", after.as_ref().map(LockName::as_str), LOOKED_UP_AT_ONCE);
            let Some(last) = locks.last() else { break };
            after = Some(last.lock.clone());
            let holds: Vec<_> = locks
                .iter()
                .flat_map(|lock| before.holds_of(&lock.lock))
                .collect();
            self.close_missing(&holds, not_before, until);
        }
        self.close_open(gap);
    }

    /// Records that nothing is known up to `until`. Returns the gap, if it is one in what the index knows.
    fn miss(&mut self, until: Position) -> Option<HistoryGap> {
        self.told = until;
        let mut gap = None;
        self.attempt(|index| {
            gap = index.missed_until(until);
            Ok(())
        });
        gap
    }

    /// Closes the holds that were open at the beginning of a gap and have ended by now.
    fn close_open(&mut self, gap: HistoryGap) {
        let mut open = Vec::new();
        self.attempt(|index| {
            open = index.open_holds();
            Ok(())
        });
        for holds in open.chunks(LOOKED_UP_AT_ONCE) {
            self.close_missing(holds, gap.after, gap.until);
        }
    }

    /// Closes those of `holds` that have ended. Events may tell their ends later, and better: a known end replaces an unknown one.
    fn close_missing(&mut self, holds: &[Arc<Hold>], not_before: Position, until: Position) {
        let Some(holders) = self.holders.upgrade() else {
            return;
        };
        let still_hold = holders.still_hold(holds);
        let over = holds.iter().zip(still_hold).filter(|(_, holds)| !holds);
        self.attempt(|index| {
            for (hold, _) in over {
                index.hidden(hold, not_before, until)?;
            }
            Ok(())
        });
    }

    /// Does something with the index, if it is open.
    fn attempt(&mut self, work: impl FnOnce(&mut Index) -> Result<(), IndexError>) {
        let mut state = self.shared.state.lock();
        let State::Open(index) = &mut *state else {
            return;
        };
        let Err(error) = work(index) else {
            return;
        };
        let failed = std::mem::replace(&mut *state, State::Paused(error.to_string()));
        drop(state);
        tracing::warn!(%error, dir = %self.dir.display(), "the lock history pauses; nothing else does");
        if let State::Open(index) = failed
            && let Err(error) = index.shut()
        {
            tracing::debug!(%error, "the index did not end in order");
        }
        self.put_aside(&error);
        self.failures = 0;
        self.retry_at = Instant::now() + FIRST_RETRY;
    }

    /// Opens the index, if that is due.
    fn reopen(&mut self) {
        let is_due = !matches!(*self.shared.state.lock(), State::Open(_)) && Instant::now() >= self.retry_at;
        if !is_due {
            return;
        }
        match Index::open(&self.dir, self.owner, self.bounds.clone()) {
            Ok(index) => {
                match index.was_lost() {
                    false => tracing::info!(records = index.len(), "the lock history is open"),
                    true => tracing::warn!(
                        dir = %self.dir.display(),
                        "nothing in the lock history can be read; it begins anew"
                    ),
                }
                *self.shared.state.lock() = State::Open(Box::new(index));
                self.failures = 0;
                // Events in the meantime are missing.
                let told = self.told;
                if let Some(gap) = self.miss(told) {
                    self.close_open(gap);
                }
            }
            Err(error) => {
                // The files of an index that was just closed are free a moment later.
                if self.failures == 4 || !error.may_pass() {
                    tracing::warn!(%error, dir = %self.dir.display(), "the lock history cannot be opened");
                }
                *self.shared.state.lock() = State::Paused(error.to_string());
                self.put_aside(&error);
                self.retry_at =
                    Instant::now() + LAST_RETRY.min(FIRST_RETRY * 2_u32.pow(self.failures.min(16)));
                self.failures += 1;
            }
        }
    }

    /// Moves an index away that can never be opened.
    fn put_aside(&self, error: &IndexError) {
        if error.may_pass() {
            return;
        }
        match lock_history::set_aside(&self.dir) {
            Ok(aside) => tracing::warn!(
                aside = %aside.display(),
                "the lock history begins anew; the old one was set aside and can be deleted"
            ),
            Err(error) => tracing::warn!(%error, "the old lock history could not be set aside"),
        }
    }

    fn tidy(&mut self, is_idle: bool) {
        if self.flushed.elapsed() >= TICK {
            self.flushed = Instant::now();
            self.attempt(|index| {
                index.commit(is_idle)?;
                index.flush()
            });
        }
        if self.aged.is_none_or(|aged| aged.elapsed() >= AGE_EVERY) {
            self.aged = Some(Instant::now());
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
            self.attempt(|index| index.remove_expired(now_ms));
        }
    }
}
