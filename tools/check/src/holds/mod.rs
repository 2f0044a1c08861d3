//! Checker of the holds of each lock according to the servers: conflicting holds do not overlap,
//! permits stay within their limit, tokens increase, no contender overtakes another, and no waiter
//! is starved. Its source is the log; [`client_view`](crate::client_view) checks what clients
//! believed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::verdict::Verdict;

mod merge;
mod order;

pub use merge::merge;

/// Position in the log: a zxid, or a timestamp of the log, which never decreases. A history uses
/// one kind throughout. Events with the same timestamp have no known order, so timestamps reveal
/// less than zxids: no overlap shorter than their unit.
pub type Position = u64;

/// Mode in which a contender holds a lock, or requests it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// Excludes all other holds.
    Exclusive,
    /// Compatible with shared holds and one upgradeable hold.
    Shared,
    /// Compatible with shared holds, but not with a second upgradeable one.
    Upgradeable,
    /// Compatible with other permits while their sum stays within the limit.
    Permits {
        /// Number of permits of this hold.
        permits: u32,
        /// Limit on the sum of permits.
        limit: u32,
    },
}

/// One hold of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Name of the lock.
    pub lock: String,
    /// Name of the contender.
    pub contender: String,
    /// Mode of the hold.
    pub mode: Mode,
    /// Fencing token of the hold.
    pub token: u64,
    /// Time of arrival in the queue, if known. It has a scale of its own, as only its order counts.
    pub arrived: Option<u64>,
    /// First position of the hold; `None` if unknown.
    pub began: Option<Position>,
    /// End of the hold.
    pub end: End,
}

/// End of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// The hold ended at this position.
    At(Position),
    /// The hold has not ended.
    Lasting,
    /// The hold has ended, but no server recorded the position.
    Hidden {
        /// Last position at which it still held.
        not_before: Position,
        /// First position at which it no longer held.
        not_after: Position,
    },
}

/// Contender that waited and was never granted the lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    /// Name of the lock.
    pub lock: String,
    /// Name of the contender.
    pub contender: String,
    /// Mode that it requested.
    pub mode: Mode,
    /// Time of arrival, on the scale of [`Hold::arrived`].
    pub arrived: u64,
    /// Time of arrival, as a position.
    pub since: Position,
    /// Position at which it left the queue; `None` if it still waits.
    pub left: Option<Position>,
}

/// Range of positions, `after` exclusive and `until` inclusive, of which the server has discarded
/// events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// Last position before the gap.
    pub after: Position,
    /// Last position in the gap.
    pub until: Position,
}

/// Known holds and waiters of any number of locks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// Holds, in any order.
    pub holds: Vec<Hold>,
    /// Waiters, as far as they are known.
    pub waiters: Vec<Waiter>,
    /// Ranges with missing events.
    pub gaps: Vec<Gap>,
}

impl Hold {
    /// Returns the position before which it certainly held; `None` if it still does.
    fn certain_end(&self) -> Option<Position> {
        match self.end {
            End::At(end) => Some(end),
            End::Lasting => None,
            End::Hidden { not_before, .. } => Some(not_before),
        }
    }

    fn describe(&self) -> String {
        let began = self.began.map_or("?".to_owned(), |began| began.to_string());
        let end = match self.end {
            End::At(end) => end.to_string(),
            End::Lasting => "…".to_owned(),
            End::Hidden {
                not_before,
                not_after,
            } => format!("({not_before} to {not_after})"),
        };
        format!(
            "{} ({:?}, token {}, held [{began}, {end}))",
            self.contender, self.mode, self.token
        )
    }
}

/// Checks all rules for each lock of the history. Undecided if events may be missing.
pub fn check(history: &History) -> Verdict {
    check_known(history).and(missing(history))
}

/// Checks all rules for the known events, and assumes that missing ones do not break a rule.
pub fn check_known(history: &History) -> Verdict {
    let mut locks: BTreeMap<&str, Lock<'_>> = BTreeMap::new();
    for hold in &history.holds {
        locks.entry(&hold.lock).or_default().holds.push(hold);
    }
    for waiter in &history.waiters {
        locks.entry(&waiter.lock).or_default().waiters.push(waiter);
    }
    locks
        .iter()
        .map(|(name, lock)| {
            let mut contradictions = lock.overlaps();
            contradictions.extend(lock.tokens());
            contradictions.extend(lock.overtaking());
            contradictions.extend(lock.starved());
            Verdict::of(contradictions).about(format_args!("lock {name}"))
        })
        .fold(Verdict::Valid, Verdict::and)
}

/// Returns `Undecided` if events may have happened that the history does not show.
fn missing(history: &History) -> Verdict {
    if let Some(gap) = history.gaps.first() {
        return Verdict::Undecided(format!(
            "{} gaps; the first covers the positions {} to {}",
            history.gaps.len(),
            gap.after,
            gap.until
        ));
    }
    let hidden = |hold: &&Hold| hold.began.is_none() || matches!(hold.end, End::Hidden { .. });
    match history.holds.iter().find(hidden) {
        Some(hold) => Verdict::Undecided(format!(
            "lock {}: the beginning or the end is unknown of {}",
            hold.lock,
            hold.describe()
        )),
        None => Verdict::Valid,
    }
}

/// Known holds and waiters of one lock.
#[derive(Default)]
struct Lock<'a> {
    holds: Vec<&'a Hold>,
    waiters: Vec<&'a Waiter>,
}

impl<'a> Lock<'a> {
    /// Returns the holds with a known beginning, in its order.
    fn begun(&self) -> Vec<(Position, &'a Hold)> {
        let mut begun: Vec<_> = self
            .holds
            .iter()
            .filter_map(|hold| Some((hold.began?, *hold)))
            .collect();
        begun.sort_by_key(|(began, hold)| (*began, hold.token));
        begun
    }

    /// Reports concurrent holds that exclude each other or exceed the permits.
    fn overlaps(&self) -> Vec<String> {
        let mut contradictions = Vec::new();
        let mut holding: Vec<&Hold> = Vec::new();
        for (began, hold) in self.begun() {
            holding.retain(|other| other.certain_end().is_none_or(|end| end > began));
            if let Some(other) = holding.iter().find(|other| !shareable(other.mode, hold.mode)) {
                contradictions.push(format!(
                    "{} held together with {}",
                    hold.describe(),
                    other.describe()
                ));
            }
            holding.push(hold);
            if let Mode::Permits { limit, .. } = hold.mode
                && holding.len() > 1
                && permits(&holding) > u64::from(limit)
            {
                let holders: Vec<String> = holding.iter().map(|hold| hold.describe()).collect();
                contradictions.push(format!(
                    "{} of {limit} permits were held at {began}, by {}",
                    permits(&holding),
                    holders.join(", ")
                ));
            }
        }
        contradictions
    }

    /// Reports repeated tokens, and tokens that do not increase from a hold to a later one that it
    /// excludes.
    fn tokens(&self) -> Vec<String> {
        let mut contradictions = Vec::new();
        let mut by_token: BTreeMap<u64, &Hold> = BTreeMap::new();
        for hold in &self.holds {
            if let Some(other) = by_token.insert(hold.token, hold) {
                contradictions.push(format!(
                    "{} has the token of {}",
                    hold.describe(),
                    other.describe()
                ));
            }
        }
        // Hold with the greatest token so far in each class of compatible modes.
        let mut greatest: BTreeMap<u8, &Hold> = BTreeMap::new();
        for (_, hold) in self.begun() {
            let later = greatest
                .iter()
                .filter(|(kind, _)| **kind != compatibility_class(hold.mode) || hold.mode == Mode::Exclusive)
                .map(|(_, other)| *other)
                .find(|other| other.began < hold.began && other.token >= hold.token);
            if let Some(other) = later {
                contradictions.push(format!(
                    "the token of {} is not greater than that of {}, which began earlier",
                    hold.describe(),
                    other.describe()
                ));
            }
            let entry = greatest.entry(compatibility_class(hold.mode)).or_insert(hold);
            if entry.token < hold.token {
                *entry = hold;
            }
        }
        contradictions
    }
}

/// Returns the class of a mode: holds may overlap only within a class.
fn compatibility_class(mode: Mode) -> u8 {
    match mode {
        Mode::Exclusive => 0,
        Mode::Shared | Mode::Upgradeable => 1,
        Mode::Permits { .. } => 2,
    }
}

/// Returns whether two modes are compatible, apart from the number of permits.
fn shareable(one: Mode, other: Mode) -> bool {
    match (one, other) {
        (Mode::Shared, Mode::Shared | Mode::Upgradeable) | (Mode::Upgradeable, Mode::Shared) => true,
        (Mode::Permits { limit: one, .. }, Mode::Permits { limit: other, .. }) => one == other,
        _ => false,
    }
}

fn permits(holds: &[&Hold]) -> u64 {
    let accepted = |hold: &&Hold| match hold.mode {
        Mode::Permits { permits, .. } => u64::from(permits),
        _ => 0,
    };
    holds.iter().map(accepted).sum()
}

#[cfg(test)]
mod tests;
