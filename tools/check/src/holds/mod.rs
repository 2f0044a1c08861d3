//! Who held which lock, by the servers' own account: holds exclude each other, permits keep within their limit, tokens grow,
//! nobody is overtaken and nobody forgotten. It sees what the log says; what clients believed is `client_view`'s.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::verdict::Verdict;

mod merge;
mod order;

pub use merge::merge;

/// A place in the log's order: zxids, or the log's times, which never go back. Within one history all are of one kind. Of
/// what happened at one time nobody can tell the order, so times see less than zxids: no overlap shorter than their unit.
pub type Position = u64;

/// How a lock is held, or wished for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// Alone.
    Exclusive,
    /// With others who share.
    Shared,
    /// With others who share, but no second one like this.
    Upgradeable,
    /// With others, as far as there are permits.
    Permits {
        /// How many it takes.
        permits: u32,
        /// How many there are.
        limit: u32,
    },
}

/// One hold of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Which lock.
    pub lock: String,
    /// Who.
    pub contender: String,
    /// How.
    pub mode: Mode,
    /// Its fencing token.
    pub token: u64,
    /// When it queued, if that is known: on a scale of its own, as only the order counts.
    pub arrived: Option<u64>,
    /// Since when; none if nobody saw it.
    pub began: Option<Position>,
    /// Until when.
    pub end: End,
}

/// How far a hold goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// It is over since then.
    At(Position),
    /// It lasts.
    Lasting,
    /// It is over, and nobody saw the end.
    Hidden {
        /// It still held then.
        not_before: Position,
        /// It held no more then.
        not_after: Position,
    },
}

/// A contender that waited and was never let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    /// Which lock.
    pub lock: String,
    /// Who.
    pub contender: String,
    /// What it wished for.
    pub mode: Mode,
    /// When it queued, on the scale of [`Hold::arrived`].
    pub arrived: u64,
    /// The same moment on the scale of positions.
    pub since: Position,
    /// When it went; none if it still waits.
    pub left: Option<Position>,
}

/// Positions after the first, up to the last, of which the server has forgotten something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The last position before it.
    pub after: Position,
    /// The last position in it.
    pub until: Position,
}

/// What is known of some locks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// In any order.
    pub holds: Vec<Hold>,
    /// As far as they are known.
    pub waiters: Vec<Waiter>,
    /// Where something may be missing.
    pub gaps: Vec<Gap>,
}

impl Hold {
    /// Up to where it held for certain, without that position; none if it still does.
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

/// Checks all rules for each lock of the history. Undecided if something may be missing.
pub fn check(history: &History) -> Verdict {
    check_known(history).and(missing(history))
}

/// Checks all rules for what is known, and takes it that whatever is missing kept them.
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

/// Whether something may have happened that the history does not show.
fn missing(history: &History) -> Verdict {
    if let Some(gap) = history.gaps.first() {
        return Verdict::Undecided(format!(
            "{} gaps; the first is of the positions {} to {}",
            history.gaps.len(),
            gap.after,
            gap.until
        ));
    }
    let hidden = |hold: &&Hold| hold.began.is_none() || matches!(hold.end, End::Hidden { .. });
    match history.holds.iter().find(hidden) {
        Some(hold) => Verdict::Undecided(format!(
            "lock {}: nobody saw the beginning or the end of {}",
            hold.lock,
            hold.describe()
        )),
        None => Verdict::Valid,
    }
}

/// What is known of one lock.
#[derive(Default)]
struct Lock<'a> {
    holds: Vec<&'a Hold>,
    waiters: Vec<&'a Waiter>,
}

impl<'a> Lock<'a> {
    /// Those holds whose beginning is known, in the order in which they began.
    fn begun(&self) -> Vec<(Position, &'a Hold)> {
        let mut begun: Vec<_> = self
            .holds
            .iter()
            .filter_map(|hold| Some((hold.began?, *hold)))
            .collect();
        begun.sort_by_key(|(began, hold)| (*began, hold.token));
        begun
    }

    /// Holds at one time that exclude each other, or take more permits than there are.
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

    /// Tokens that come twice, or do not grow from one hold to a later one that it excludes.
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
        // The greatest token so far of those who do not care for each other.
        let mut greatest: BTreeMap<u8, &Hold> = BTreeMap::new();
        for (_, hold) in self.begun() {
            let later = greatest
                .iter()
                .filter(|(kind, _)| **kind != compatibility_class(hold.mode) || hold.mode == Mode::Exclusive)
                .map(|(_, other)| *other)
                .find(|other| other.began < hold.began && other.token >= hold.token);
            if let Some(other) = later {
                contradictions.push(format!(
                    "the token of {} is not greater than that of {}, which began before",
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

/// Those of one kind may hold a lock together, at least some of them.
fn compatibility_class(mode: Mode) -> u8 {
    match mode {
        Mode::Exclusive => 0,
        Mode::Shared | Mode::Upgradeable => 1,
        Mode::Permits { .. } => 2,
    }
}

/// Whether two may hold a lock together, permits permitting.
fn shareable(one: Mode, other: Mode) -> bool {
    match (one, other) {
        (Mode::Shared, Mode::Shared | Mode::Upgradeable) | (Mode::Upgradeable, Mode::Shared) => true,
        (Mode::Permits { limit: one, .. }, Mode::Permits { limit: other, .. }) => one == other,
        _ => false,
    }
}

fn permits(holds: &[&Hold]) -> u64 {
    let taken = |hold: &&Hold| match hold.mode {
        Mode::Permits { permits, .. } => u64::from(permits),
        _ => 0,
    };
    holds.iter().map(taken).sum()
}

#[cfg(test)]
mod tests;
