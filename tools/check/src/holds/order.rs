//! Queue rules. Fairness: no contender is granted the lock before one that arrived earlier and
//! still waits. Liveness: the first waiter is not left waiting for a lock that it could hold.

use super::{Hold, Lock, Mode, Position, Waiter, permits, shareable};

/// Wait of one contender, from its arrival to its grant or its departure.
struct Wait<'a> {
    contender: &'a str,
    arrived: u64,
    admitted: Option<Position>,
    /// Position of its grant or departure; `None` if it still waits.
    until: Option<Position>,
}

impl Lock<'_> {
    /// Reports contenders that were granted the lock before one that had arrived earlier and was
    /// still waiting. There is no exception. A contender that is compatible with the holders still
    /// waits for the one in front of it: otherwise a writer could starve.
    pub(super) fn overtaking(&self) -> Vec<String> {
        let mut waits = self.waits();
        waits.sort_by_key(|wait| wait.arrived);
        let mut contradictions = Vec::new();
        // Wait with the latest end among all earlier arrivals.
        let mut longest: Option<&Wait<'_>> = None;
        for wait in &waits {
            if let (Some(before), Some(admitted)) = (longest, wait.admitted)
                && before.arrived < wait.arrived
                && before.until.is_none_or(|until| admitted < until)
            {
                contradictions.push(format!(
                    "{}, arrived at {}, was granted the lock at {admitted} before {}, arrived at {}, which waited {}",
                    wait.contender,
                    wait.arrived,
                    before.contender,
                    before.arrived,
                    before.until.map_or("until the end".to_owned(), |until| format!("until {until}"))
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

    /// Reports the first contender in the queue if it still waits at the end, although no holder
    /// excludes it: no later event would wake it.
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
                "{} has waited since {} without a cause: {}",
                first.contender,
                first.since,
                match holding.len() {
                    0 => "the lock is free".to_owned(),
                    holders => format!("the {holders} holders do not exclude it"),
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
