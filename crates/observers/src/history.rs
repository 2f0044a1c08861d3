//! This node's history of locks: a thread that takes what the tap tells and keeps it in a [`lock_history::Index`], and those
//! who ask for it. Whatever happens to the index, nothing but history suffers.
//!
//! What a record says is not decided here but by the state machine, and how it is kept by `lock_history`.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lock_history::{Gap, HistoryLimits, Index, IndexError, Position, Record};
use parking_lot::{Condvar, Mutex};
use znode_store::{Hold, LockName};

use crate::tap::{AppliedHolds, HoldChange, TapEnd, TapMeter, Told};

/// The directory of the index in the data directory.
pub const HISTORY_DIR: &str = "history";

/// After the first thing that is told it waits so long for more: then the applier never has to wake this thread up more
/// often, and many changes become one batch. Whoever asks for a history waits so long, too.
const GATHER: Duration = Duration::from_millis(50);

/// With nothing to do it looks so often what else there is to do. So much history a process that is killed may lose (and
/// make again from its log).
const TICK: Duration = Duration::from_secs(1);

/// How often records are looked at for their age.
const AGE_EVERY: Duration = Duration::from_secs(60);

/// How long after a failure the index is opened again at first; then twice as long each time.
const FIRST_RETRY: Duration = Duration::from_millis(100);

/// And at most: a disk that is full may be so for hours.
const LAST_RETRY: Duration = Duration::from_secs(30);

/// How long a question waits until the index knows what the state knows. Usually it takes [`GATHER`].
const ANSWER_PATIENCE: Duration = Duration::from_secs(2);

/// How long a node that stops waits for the index to be written.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// So many holders are looked up in the state at a time: some microseconds in which nothing is applied.
const LOOKED_UP_AT_ONCE: usize = 64;

/// Some of what is remembered of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockHistory {
    /// The latest first.
    pub entries: Vec<HistoryEntry>,
    /// The token before which the next page begins; `None` on the last one.
    pub next_before: Option<u64>,
    /// Where something may be missing, in the time of this page.
    pub gaps: Vec<Gap>,
    /// There are no records of what ended up to here.
    pub since: Position,
}

/// One hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HistoryEntry {
    /// It holds.
    Open(Hold),
    /// It is over.
    Over(Record),
}

impl HistoryEntry {
    /// Who held what.
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

/// State that knows who holds a lock at present.
pub trait Holders: Send + Sync {
    /// Returns of each hold whether it is one still.
    fn still_hold(&self, holds: &[Arc<Hold>]) -> Vec<bool>;
}

/// Those who ask, and the thread's handle.
pub struct History {
    shared: Arc<Shared>,
    meter: TapMeter,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// How many messages were taken.
    taken: Mutex<u64>,
    took: Condvar,
}

#[derive(Default)]
enum State {
    /// The thread has not got to it yet.
    #[default]
    Opening,
    Kept(Box<Index>),
    /// The index cannot be used now, for this reason.
    Paused(String),
}

impl History {
    /// Begins to keep what is told at `end` in `dir`. `owner` is the data directory's id.
    pub fn start(
        dir: PathBuf,
        owner: [u8; 16],
        bounds: HistoryLimits,
        end: TapEnd,
        meter: TapMeter,
        holders: Weak<dyn Holders>,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let keeper = Keeper {
            dir,
            owner,
            bounds,
            holders,
            meter: meter.clone(),
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
                    keeper.run(&end);
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
            meter,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// How much was told so far. Ask while the state is locked.
    pub fn told(&self) -> u64 {
        self.meter.sent()
    }

    /// The records of a lock and who holds it, before a token. `holds` is who held it when `told` was asked. It blocks.
    pub fn page(
        &self,
        lock: &LockName,
        before: Option<u64>,
        count: usize,
        holds: Vec<Arc<Hold>>,
        told: u64,
    ) -> Result<LockHistory, HistoryUnavailable> {
        self.shared.wait_taken(told)?;
        let mut state = self.shared.state.lock();
        let index = match &mut *state {
            State::Kept(index) => index,
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

    /// Waits until the thread has ended, which somebody has told it to, but not for ever. It blocks.
    pub fn stop(&self) {
        let Some(thread) = self.thread.lock().take() else {
            return;
        };
        let deadline = Instant::now() + STOP_PATIENCE;
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
    fn wait_taken(&self, told: u64) -> Result<(), HistoryUnavailable> {
        let deadline = Instant::now() + ANSWER_PATIENCE;
        let mut taken = self.taken.lock();
        while *taken < told {
            if self.took.wait_until(&mut taken, deadline).timed_out() {
                return Err(HistoryUnavailable::new("the lock history is behind"));
            }
        }
        Ok(())
    }

    fn set_taken(&self, count: u64) {
        *self.taken.lock() = count;
        self.took.notify_all();
    }
}

/// Puts the holders between the records, the latest first, and cuts the page off after `count`, but not between two with
/// one token.
fn merge(
    records: Vec<Record>,
    next_before: Option<u64>,
    holds: Vec<Hold>,
    before: Option<u64>,
    count: usize,
) -> (Vec<HistoryEntry>, Option<u64>) {
    // Whoever has ended since the state was looked at is a record by now.
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

/// The thread.
struct Keeper {
    dir: PathBuf,
    owner: [u8; 16],
    bounds: HistoryLimits,
    holders: Weak<dyn Holders>,
    meter: TapMeter,
    shared: Arc<Shared>,
    /// The last position that was told, kept or not.
    told: Position,
    flushed: Instant,
    aged: Option<Instant>,
    /// How often in a row the index could not be opened.
    failures: u32,
    retry_at: Instant,
}

impl Keeper {
    fn run(mut self, end: &TapEnd) {
        let mut taken = 0;
        loop {
            self.reopen();
            let (mut next, idle) = match end.wait(TICK) {
                Ok(told) => {
                    std::thread::sleep(GATHER);
                    (Some(told), false)
                }
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => (None, true),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
            };
            // What was told up to here is taken below.
            let (zxid, time_ms) = self.meter.told_until();
            let mut stops = false;
            while let Some(told) = next.take().or_else(|| end.next()) {
                match told {
                    Told::Stop => {
                        stops = true;
                        break;
                    }
                    told => {
                        self.take(told);
                        taken += 1;
                    }
                }
            }
            let until = Position { zxid, time_ms };
            if until.zxid > self.told.zxid {
                self.told = until;
            }
            self.attempt(|index| {
                index.advance_to(until);
                index.commit(idle)
            });
            self.shared.set_taken(taken);
            if stops {
                break;
            }
            self.tidy();
        }
        let state = std::mem::replace(
            &mut *self.shared.state.lock(),
            State::Paused("this node stops".into()),
        );
        if let State::Kept(index) = state
            && let Err(error) = index.shut()
        {
            tracing::warn!(%error, "the end of the lock history could not be written");
        }
    }

    fn take(&mut self, told: Told) {
        match told {
            Told::Applied(applied) => self.applied(applied),
            Told::Replaced {
                before,
                zxid,
                time_ms,
                missed,
            } => {
                let until = Position { zxid, time_ms };
                let not_before = Position {
                    zxid: before.zxid().0,
                    time_ms: before.time_ms(),
                };
                // What is hidden between the two states, and what was hidden before the first, are one gap.
                if missed > 0 {
                    tracing::warn!(messages = missed, "the lock history has missed something");
                }
                if let Some(gap) = self.miss(until) {
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
            }
            Told::Stop => {}
        }
    }

    fn applied(&mut self, applied: AppliedHolds) {
        if applied.missed > 0 {
            let until = Position {
                zxid: applied.after,
                time_ms: self.told.time_ms.max(applied.time_ms),
            };
            tracing::warn!(
                messages = applied.missed,
                after = self.told.zxid,
                until = until.zxid,
                "the lock history has missed something"
            );
            if let Some(gap) = self.miss(until) {
                self.close_open(gap);
            }
        }
        let told = Position {
            zxid: applied.zxid,
            time_ms: applied.time_ms,
        };
        self.told = told;
        self.attempt(|index| {
            for (zxid, change) in &applied.holds {
                match change {
                    HoldChange::Began(hold) => index.began(hold),
                    HoldChange::Ended {
                        hold,
                        how,
                        by,
                        time_ms,
                    } => {
                        let at = Position {
                            zxid: *zxid,
                            time_ms: *time_ms,
                        };
                        index.ended(hold, at, how, by.as_deref())?;
                    }
                }
            }
            index.advance_to(told);
            Ok(())
        });
    }

    /// Notes that nothing is known up to `until`; returns the gap, if that is one in what the index knows.
    fn miss(&mut self, until: Position) -> Option<Gap> {
        self.told = until;
        let mut gap = None;
        self.attempt(|index| {
            gap = index.missed_until(until);
            Ok(())
        });
        gap
    }

    /// Closes those of the holds that were open at the beginning of a gap that are over by now.
    fn close_open(&mut self, gap: Gap) {
        let mut open = Vec::new();
        self.attempt(|index| {
            open = index.open_holds();
            Ok(())
        });
        for holds in open.chunks(LOOKED_UP_AT_ONCE) {
            self.close_missing(holds, gap.after, gap.until);
        }
    }

    /// Closes those of `holds` that hold no more. What the state knows may be told later, and then better: an end that is
    /// known takes the place of one that is not.
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

    /// Does something with the index, if there is one just now.
    fn attempt(&mut self, work: impl FnOnce(&mut Index) -> Result<(), IndexError>) {
        let mut state = self.shared.state.lock();
        let State::Kept(index) = &mut *state else {
            return;
        };
        let Err(error) = work(index) else {
            return;
        };
        let failed = std::mem::replace(&mut *state, State::Paused(error.to_string()));
        drop(state);
        tracing::warn!(%error, dir = %self.dir.display(), "the lock history pauses; nothing else does");
        if let State::Kept(index) = failed
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
        let is_due = !matches!(*self.shared.state.lock(), State::Kept(_)) && Instant::now() >= self.retry_at;
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
                *self.shared.state.lock() = State::Kept(Box::new(index));
                self.failures = 0;
                // What was told meanwhile is missing.
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

    /// Puts an index out of the way that can never be opened.
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

    fn tidy(&mut self) {
        if self.flushed.elapsed() >= TICK {
            self.flushed = Instant::now();
            self.attempt(Index::flush);
        }
        if self.aged.is_none_or(|aged| aged.elapsed() >= AGE_EVERY) {
            self.aged = Some(Instant::now());
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
            self.attempt(|index| index.remove_expired(now_ms));
        }
    }
}
