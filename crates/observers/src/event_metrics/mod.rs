//! Metrics of sessions and locks: openings and ends of sessions; grants, waiting times, holding times, and how waits and holds end. For all locks, and for those below each configured
//! prefix.
//!
//! Every node applies every command, but only the leader counts, so that the sum over all nodes is right. Entries that are applied between
//! two leader terms are not counted. Times are the state's own, in milliseconds.

use std::collections::HashMap;

use znode_store::{ContenderEnd, Event, Hold, LockName, Store};

use instruments::counters::{Classes, Counter, Histogram};
use instruments::text_format::Sheet;
use raft_log::sync::Mutex;

/// Maximum number of holds of ZooKeeper clients whose beginning is stored, because their ends do not have it. The holding times of further
/// ones are not counted.
const MAX_BEGINNINGS: usize = 65_536;

/// Reasons for the end of a hold or of a wait, as labels.
const ENDS: [&str; 11] = [
    "released",
    "withdrawn",
    "timed_out",
    "session_closed",
    "session_expired",
    "broken",
    "deleted",
    "never_grantable",
    "upgraded",
    "forbidden",
    "max_hold",
];
const TIMED_OUT: usize = 2;

fn end(how: &ContenderEnd) -> usize {
    match how {
        ContenderEnd::Released => 0,
        ContenderEnd::Withdrawn => 1,
        ContenderEnd::SessionClosed => 3,
        ContenderEnd::SessionExpired => 4,
        ContenderEnd::Broken { .. } => 5,
        ContenderEnd::Deleted => 6,
        ContenderEnd::NeverGrantable { .. } => 7,
        ContenderEnd::Upgraded => 8,
        ContenderEnd::Forbidden => 9,
        ContenderEnd::MaxHold => 10,
    }
}

/// Returns whether a hold can end for this reason. Only waits end by a timeout or as `forbidden`.
fn ends_holds(end: usize) -> bool {
    end != TIMED_OUT && ENDS[end] != "forbidden"
}

/// Returns whether a wait can end without the lock for this reason.
fn ends_waits(end: usize) -> bool {
    !matches!(ENDS[end], "released" | "upgraded" | "max_hold")
}

/// Metrics of sessions and locks.
#[derive(Debug)]
pub struct EventMetrics {
    sessions_opened: Counter,
    sessions_closed: Counter,
    sessions_expired: Counter,
    locks: LockCounters,
}

impl EventMetrics {
    /// Returns counters for all locks, and for those below `prefixes`.
    pub fn new(prefixes: &[String]) -> Self {
        Self {
            sessions_opened: Counter::default(),
            sessions_closed: Counter::default(),
            sessions_expired: Counter::default(),
            locks: LockCounters::new(prefixes),
        }
    }

    /// Begins a leader term: holds whose beginning is stored may have ended in another node's term.
    pub fn begin_term(&self) {
        self.locks.begin_term();
    }

    /// Counts the events of one command. `timed_out` says whether it withdraws waits whose time is over.
    pub fn count(&self, store: &Store, timed_out: bool, events: &[Event]) {
        for event in events {
            match event {
                Event::SessionOpened(_) => self.sessions_opened.up(),
                Event::SessionEnded { expired: true, .. } => self.sessions_expired.up(),
                Event::SessionEnded { expired: false, .. } => self.sessions_closed.up(),
                _ => {}
            }
        }
        self.locks.count(store, timed_out, events);
    }

    /// Returns the prefixes that are counted separately.
    pub fn lock_prefixes(&self) -> impl Iterator<Item = &str> {
        self.locks.below.iter().map(|(prefix, _)| prefix.as_str())
    }

    /// Writes the metrics.
    pub fn write(&self, sheet: &mut Sheet<'_>) -> std::fmt::Result {
        let help = "Sessions that were opened";
        sheet.counter("sessions_opened", help, self.sessions_opened.get())?;
        let help = "Sessions that ended, at their owner's wish or for want of heartbeats";
        let ended = [
            ("closed", &self.sessions_closed),
            ("expired", &self.sessions_expired),
        ];
        let ended = ended.map(|(reason, counter)| ([("reason", reason)], counter.get()));
        sheet.counters("sessions_ended", help, ended)?;
        self.locks.write(sheet)
    }
}

/// Counters of locks.
#[derive(Debug)]
struct LockCounters {
    all: LockCounterSet,
    below: Vec<(String, LockCounterSet)>,
    /// Beginnings of holds whose ends do not have them, by fencing token.
    beginnings: Mutex<HashMap<u64, u64>>,
}

#[derive(Debug)]
struct LockCounterSet {
    grants: Counter,
    waits: Histogram,
    holds: Histogram,
    holds_ended: [Counter; ENDS.len()],
    waits_ended: [Counter; ENDS.len()],
}

impl Default for LockCounterSet {
    fn default() -> Self {
        Self {
            grants: Counter::default(),
            waits: Histogram::new(&Classes::LONG_WAITS),
            holds: Histogram::new(&Classes::LONG_WAITS),
            holds_ended: Default::default(),
            waits_ended: Default::default(),
        }
    }
}

impl LockCounters {
    fn new(prefixes: &[String]) -> Self {
        Self {
            all: LockCounterSet::default(),
            below: prefixes
                .iter()
                .map(|prefix| (prefix.clone(), LockCounterSet::default()))
                .collect(),
            beginnings: Mutex::default(),
        }
    }

    fn begin_term(&self) {
        self.beginnings.lock().clear();
    }

    /// Counts the events of one command. `timed_out` says whether it withdraws waits whose time is over.
    fn count(&self, store: &Store, timed_out: bool, events: &[Event]) {
        // The end of a holder is two events, its hold's first.
        let mut held: Option<&Hold> = None;
        for event in events {
            match event {
                Event::HoldBegan(hold) => {
                    if is_silent(hold)
                        && let Some(since_ms) = hold.since_ms
                    {
                        let mut beginnings = self.beginnings.lock();
                        if beginnings.len() < MAX_BEGINNINGS {
                            beginnings.insert(hold.fencing_token.0, since_ms);
                        }
                    }
                    self.of(&hold.lock, |counters| counters.grants.up());
                }
                Event::Granted { grant, .. } => {
                    let came = store.contender_came_ms(&grant.lock, &grant.holder);
                    if let Some(came) = came {
                        let waited = store.time_ms().saturating_sub(came);
                        self.of(&grant.lock, |counters| counters.waits.count(waited));
                    }
                }
                Event::HoldEnded { hold, how, .. } => {
                    held = Some(hold);
                    let known = match is_silent(hold) {
                        true => self.beginnings.lock().remove(&hold.fencing_token.0),
                        false => None,
                    };
                    let since = hold.since_ms.or(known);
                    let lasted = since.map(|since| store.time_ms().saturating_sub(since));
                    self.of(&hold.lock, |counters| {
                        counters.holds_ended[end(how)].up();
                        if let Some(lasted) = lasted {
                            counters.holds.count(lasted);
                        }
                    });
                }
                Event::ContenderEnded {
                    lock, holder, how, ..
                } => {
                    let was_held = held
                        .take()
                        .is_some_and(|hold| hold.lock == *lock && *hold.holder == **holder);
                    if !was_held {
                        let end = match how {
                            ContenderEnd::Withdrawn if timed_out => TIMED_OUT,
                            how => end(how),
                        };
                        self.of(lock, |counters| counters.waits_ended[end].up());
                    }
                }
                _ => {}
            }
        }
    }

    fn of(&self, lock: &LockName, count: impl Fn(&LockCounterSet)) {
        count(&self.all);
        for (prefix, counters) in &self.below {
            if lock.as_str().starts_with(prefix.as_str()) {
                count(counters);
            }
        }
    }

    fn write(&self, sheet: &mut Sheet<'_>) -> std::fmt::Result {
        let all = &self.all;
        let help = "Locks that were granted, at once or after a wait";
        sheet.counter("lock_grants", help, all.grants.get())?;
        let help = "How long those waited who were granted a lock after a wait";
        sheet.histogram("lock_wait_duration_seconds", help, &all.waits.measured())?;
        let help = "How long locks were held that are not any more";
        sheet.histogram("lock_hold_duration_seconds", help, &all.holds.measured())?;
        let help = "Holds that ended, by how; all but released and upgraded are losses";
        let ended = ended(&all.holds_ended, ends_holds);
        sheet.counters(
            "lock_holds_ended",
            help,
            ended.map(|(end, count)| ([("reason", end)], count)),
        )?;
        let help = "Waits that ended without the lock, by how";
        let ended = self::ended(&all.waits_ended, ends_waits);
        sheet.counters(
            "lock_waits_ended",
            help,
            ended.map(|(end, count)| ([("reason", end)], count)),
        )?;
        self.write_below(sheet)
    }

    fn write_below(&self, sheet: &mut Sheet<'_>) -> std::fmt::Result {
        let each = || {
            self.below
                .iter()
                .map(|(prefix, counters)| (("prefix", prefix.as_str()), counters))
        };
        let help = "The same as lock_grants, of the locks below a configured prefix";
        let grants = each().map(|(prefix, counters)| ([prefix], counters.grants.get()));
        sheet.counters("lock_prefix_grants", help, grants)?;
        let help = "The same as lock_wait_duration, below a configured prefix";
        let waits = each().map(|(prefix, counters)| ([prefix], counters.waits.measured()));
        sheet.histograms("lock_prefix_wait_duration_seconds", help, waits)?;
        let help = "The same as lock_hold_duration, below a configured prefix";
        let holds = each().map(|(prefix, counters)| ([prefix], counters.holds.measured()));
        sheet.histograms("lock_prefix_hold_duration_seconds", help, holds)?;
        let help = "The same as lock_holds_ended, below a configured prefix";
        let holds = each().flat_map(|(prefix, counters)| {
            let ended = ended(&counters.holds_ended, ends_holds);
            ended.map(move |(end, count)| ([prefix, ("reason", end)], count))
        });
        sheet.counters("lock_prefix_holds_ended", help, holds)?;
        let help = "The same as lock_waits_ended, below a configured prefix";
        let waits = each().flat_map(|(prefix, counters)| {
            let ended = ended(&counters.waits_ended, ends_waits);
            ended.map(move |(end, count)| ([prefix, ("reason", end)], count))
        });
        sheet.counters("lock_prefix_waits_ended", help, waits)
    }
}

/// Returns all counters, also those at zero: a query for an increase needs a zero before it.
fn ended(
    counters: &[Counter; ENDS.len()],
    can_be: fn(usize) -> bool,
) -> impl Iterator<Item = (&'static str, u64)> {
    let counted = counters.iter().enumerate().filter(move |(end, _)| can_be(*end));
    counted.map(|(end, counter)| (ENDS[end], counter.get()))
}

/// Returns whether a hold is one of a ZooKeeper client: the state has nothing of it but its znode.
fn is_silent(hold: &Hold) -> bool {
    hold.address.as_str().is_empty() && hold.owner.is_empty() && hold.note.is_empty()
}

#[cfg(test)]
mod tests;
