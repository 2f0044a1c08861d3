//! First come, first served: no contender is let in before one that came earlier and still waits, and the first of those
//! who wait does not wait for nothing.

use super::{Hold, Lock, Mode, Position, Waiter, permits, shareable};

/// A contender from its arrival until it was let in, or went.
struct Wait<'a> {
    contender: &'a str,
    arrived: u64,
    admitted: Option<Position>,
    /// When it was let in or went; none if it still waits.
    until: Option<Position>,
}

impl Lock<'_> {
    /// Contenders that were let in before one that had come earlier and was still waiting. There is no exception: who could
    /// be let in, if it were not for the one in front of it, waits all the same, as else a writer could wait for ever.
    pub(super) fn overtaking(&self) -> Vec<String> {
        let mut waits = self.waits();
        waits.sort_by_key(|wait| wait.arrived);
        let mut contradictions = Vec::new();
        // The one that waited longest, of all that came before.
        let mut longest: Option<&Wait<'_>> = None;
        for wait in &waits {
            if let (Some(before), Some(admitted)) = (longest, wait.admitted)
                && before.arrived < wait.arrived
                && before.until.is_none_or(|until| admitted < until)
            {
                contradictions.push(format!(
                    "{}, which came at {}, was let in at {admitted}, before {}, which had come at {} and waited {}",
                    wait.contender,
                    wait.arrived,
                    before.contender,
                    before.arrived,
                    before.until.map_or("to the end".to_owned(), |until| format!("until {until}"))
                ));
            }
            let end = |wait: &Wait<'_>| wait.until.unwrap_or(Position::MAX);
            if longest.is_none_or(|longest| end(longest) < end(wait)) {
                longest = Some(wait);
            }
        }
        contradictions
    }

    fn waits(&self) -> Vec<Wait<'_>> {
        let admitted = self.holds.iter().filter_map(|hold| {
            Some(Wait {
                contender: &hold.contender,
                arrived: hold.arrived?,
                admitted: hold.began,
                until: Some(hold.began?),
            })
        });
        let others = self.waiters.iter().map(|waiter| Wait {
            contender: &waiter.contender,
            arrived: waiter.arrived,
            admitted: None,
            until: waiter.left,
        });
        admitted.chain(others).collect()
    }

    /// Contenders that still wait at the end, first in the queue, although nobody holds the lock against them: nobody will
    /// ever wake them.
    pub(super) fn starved(&self) -> Vec<String> {
        let Some(first) = self
            .waiters
            .iter()
            .filter(|waiter| waiter.left.is_none())
            .min_by_key(|waiter| waiter.arrived)
        else {
            return Vec::new();
        };
        let holding: Vec<&Hold> = self
            .holds
            .iter()
            .copied()
            .filter(|hold| hold.certain_end().is_none())
            .collect();
        if can_be_granted(first, &holding) {
            vec![format!(
                "{} has waited since {} for nothing: {}",
                first.contender,
                first.since,
                match holding.len() {
                    0 => "nobody holds the lock".to_owned(),
                    holders => format!("the {holders} that hold the lock do not exclude it"),
                }
            )]
        } else {
            Vec::new()
        }
    }
}

fn can_be_granted(waiter: &Waiter, holding: &[&Hold]) -> bool {
    let room = match waiter.mode {
        Mode::Permits {
            permits: wished,
            limit,
        } => permits(holding) + u64::from(wished) <= u64::from(limit),
        _ => true,
    };
    holding.is_empty() || (room && holding.iter().all(|hold| shareable(hold.mode, waiter.mode)))
}
