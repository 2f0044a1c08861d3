//! Tests of each rule: histories that satisfy it and histories that violate it.

use proptest::prelude::*;

use super::*;
use crate::testing::Chooser;

fn hold(contender: &str, mode: Mode, token: u64, began: u64, ended: Option<u64>) -> Hold {
    Hold {
        lock: "orders".into(),
        contender: contender.into(),
        mode,
        token,
        arrived: None,
        began: Some(began),
        end: ended.map_or(End::Lasting, End::At),
    }
}

fn arrived(at: u64, hold: Hold) -> Hold {
    Hold {
        arrived: Some(at),
        ..hold
    }
}

fn waiter(contender: &str, mode: Mode, arrived: u64, left: Option<u64>) -> Waiter {
    Waiter {
        lock: "orders".into(),
        contender: contender.into(),
        mode,
        arrived,
        since: arrived,
        left,
    }
}

fn verdict(holds: Vec<Hold>) -> Verdict {
    check(&History {
        holds,
        ..History::default()
    })
}

fn violated(verdict: Verdict, named: &[&str]) {
    let Verdict::Violated(lines) = verdict else {
        panic!("{verdict:?}");
    };
    for name in named {
        assert!(
            lines.iter().any(|line| line.contains(name)),
            "{name} is missing: {lines:?}"
        );
    }
}

use Mode::{Exclusive, Shared, Upgradeable};

fn lease(permits: u32, limit: u32) -> Mode {
    Mode::Permits { permits, limit }
}

#[test]
fn consecutive_holders_are_valid() {
    let holds = vec![
        hold("a", Exclusive, 1, 1, Some(5)),
        hold("b", Exclusive, 2, 5, Some(9)),
        hold("c", Shared, 3, 9, Some(20)),
        hold("d", Shared, 4, 9, None),
        hold("e", Upgradeable, 6, 10, None),
    ];
    assert_eq!(verdict(holds), Verdict::Valid);
}

#[test]
fn overlapping_exclusive_holders_are_reported() {
    let holds = vec![
        hold("a", Exclusive, 1, 1, Some(6)),
        hold("b", Exclusive, 2, 5, None),
    ];
    violated(
        verdict(holds),
        &[
            "lock orders: b (Exclusive, token 2, held [5, …)) held together with a (Exclusive, token 1, held [1, 6))",
        ],
    );
}

#[test]
fn writer_concurrent_with_reader_is_caught() {
    let holds = vec![hold("a", Shared, 1, 1, None), hold("b", Exclusive, 2, 5, Some(6))];
    violated(verdict(holds), &["b (Exclusive", "together with a (Shared"]);
    let holds = vec![
        hold("a", Exclusive, 1, 1, Some(7)),
        hold("b", Shared, 2, 5, Some(6)),
    ];
    violated(verdict(holds), &["b (Shared", "together with a (Exclusive"]);
}

#[test]
fn overlapping_upgradeable_holders_are_caught() {
    let holds = vec![
        hold("a", Upgradeable, 1, 1, None),
        hold("b", Upgradeable, 2, 5, None),
    ];
    violated(verdict(holds), &["together"]);
}

#[test]
fn permits_above_the_limit_are_caught() {
    let holds = vec![
        hold("a", lease(2, 3), 1, 1, Some(4)),
        hold("b", lease(1, 3), 2, 2, None),
        hold("c", lease(2, 3), 3, 4, None),
    ];
    assert_eq!(verdict(holds.clone()), Verdict::Valid);
    let too_many = vec![holds[0].clone(), hold("b", lease(2, 3), 2, 2, None)];
    violated(verdict(too_many), &["4 of 3 permits were held at 2, by a"]);
    // A contender cannot request more than the limit, so a lone holder is always valid.
    assert_eq!(verdict(vec![hold("a", lease(9, 3), 1, 1, None)]), Verdict::Valid);
}

#[test]
fn token_that_does_not_increase_is_caught() {
    let holds = vec![
        hold("a", Exclusive, 5, 1, Some(2)),
        hold("b", Exclusive, 4, 3, Some(4)),
    ];
    violated(
        verdict(holds),
        &["the token of b (Exclusive, token 4, held [3, 4)) is not greater than that of a"],
    );
    let holds = vec![
        hold("a", Exclusive, 5, 1, Some(2)),
        hold("b", Exclusive, 5, 3, Some(4)),
    ];
    violated(
        verdict(holds),
        &["b (Exclusive, token 5, held [3, 4)) has the token of a"],
    );
    let holds = vec![
        hold("a", Shared, 5, 1, Some(2)),
        hold("b", Exclusive, 4, 3, Some(4)),
    ];
    violated(verdict(holds), &["is not greater"]);
    // Holds that do not exclude each other may have tokens in any order.
    let holds = vec![hold("a", Shared, 5, 1, Some(9)), hold("b", Shared, 4, 3, Some(4))];
    assert_eq!(verdict(holds), Verdict::Valid);
}

#[test]
fn overtaking_a_waiter_is_caught() {
    let a = arrived(1, hold("a", Exclusive, 1, 1, Some(10)));
    let b = arrived(2, hold("b", Exclusive, 2, 10, Some(20)));
    let c = arrived(3, hold("c", Shared, 3, 20, Some(30)));
    assert_eq!(verdict(vec![a.clone(), b.clone(), c]), Verdict::Valid);
    let early = arrived(3, hold("c", Shared, 3, 10, Some(12)));
    let late = Hold { began: Some(12), ..b };
    violated(
        verdict(vec![a, late, early]),
        &["c, arrived at 3, was granted the lock at 10 before b, arrived at 2, which waited until 12"],
    );
}

#[test]
fn overtaking_a_waiter_that_left_is_caught() {
    let history = |left| History {
        holds: vec![
            arrived(1, hold("a", Shared, 1, 1, Some(10))),
            arrived(3, hold("c", Shared, 3, 7, Some(12))),
        ],
        waiters: vec![waiter("writer", Exclusive, 2, left)],
        gaps: Vec::new(),
    };
    assert_eq!(check(&history(Some(7))), Verdict::Valid);
    violated(
        check(&history(Some(8))),
        &["before writer, arrived at 2, which waited until 8"],
    );
    violated(check(&history(None)), &["waited until the end"]);
}

#[test]
fn starved_first_waiter_is_caught() {
    let history = |end| History {
        holds: vec![arrived(1, hold("a", Exclusive, 1, 1, end))],
        waiters: vec![waiter("b", Exclusive, 2, None), waiter("c", Shared, 3, None)],
        gaps: Vec::new(),
    };
    assert_eq!(check(&history(None)), Verdict::Valid);
    violated(
        check(&history(Some(5))),
        &["b has waited since 2 without a cause: the lock is free"],
    );
}

#[test]
fn gaps_make_a_history_undecided() {
    let mut history = History {
        holds: vec![hold("a", Exclusive, 1, 1, Some(5))],
        waiters: Vec::new(),
        gaps: vec![Gap { after: 3, until: 9 }],
    };
    assert!(matches!(check(&history), Verdict::Undecided(_)));
    history.gaps.clear();
    history.holds[0].began = None;
    assert!(matches!(check(&history), Verdict::Undecided(_)));
    history.holds[0].began = Some(1);
    history.holds[0].end = End::Hidden {
        not_before: 4,
        not_after: 9,
    };
    assert!(matches!(check(&history), Verdict::Undecided(_)));
    // Certain contradictions are still reported.
    history.holds.push(hold("b", Exclusive, 2, 3, None));
    violated(check(&history), &["held together"]);
}

#[test]
fn locks_are_checked_independently() {
    let mut other = hold("b", Exclusive, 1, 2, None);
    other.lock = "invoices".into();
    assert_eq!(
        verdict(vec![hold("a", Exclusive, 1, 1, None), other]),
        Verdict::Valid
    );
}

#[test]
fn histories_of_several_servers_merge() {
    let gap = |after, until| Gap { after, until };
    let whole = History {
        holds: vec![
            hold("a", Exclusive, 1, 1, Some(5)),
            hold("b", Exclusive, 2, 5, None),
        ],
        waiters: Vec::new(),
        gaps: vec![gap(20, 30)],
    };
    let mut behind = whole.clone();
    behind.holds = vec![hold("a", Exclusive, 1, 1, None)];
    behind.waiters = vec![waiter("b", Exclusive, 2, None)];
    behind.gaps = vec![gap(3, 9), gap(25, 40)];
    let (merged, contradictions) = merge(&[behind, whole.clone()]);
    assert_eq!(contradictions, Vec::<String>::new());
    assert_eq!((merged.holds, merged.waiters), (whole.holds.clone(), Vec::new()));
    assert_eq!(merged.gaps, [gap(25, 30)]);
    let mut other = whole.clone();
    other.holds[0].end = End::At(6);
    let (_, contradictions) = merge(&[whole, other]);
    assert_eq!(contradictions.len(), 1, "{contradictions:?}");
}

/// Returns the history of a correct lock: contenders arrive and leave at random, and the first in
/// the queue is granted the lock as soon as it is compatible with the holders.
fn random_history(seed: u64) -> History {
    let mut chooser = Chooser::new(seed);
    let mut history = History::default();
    let mut queue: Vec<(u64, Mode)> = Vec::new();
    let mut holding: Vec<usize> = Vec::new();
    for position in 1..200 {
        match chooser.below(3) {
            0 => {
                let mode = if chooser.below(2) == 0 { Exclusive } else { Shared };
                queue.push((position, mode));
            }
            1 if !holding.is_empty() => {
                let index = holding.swap_remove(chooser.below(holding.len() as u64) as usize);
                history.holds[index].end = End::At(position);
            }
            2 if !queue.is_empty() && chooser.below(4) == 0 => {
                let (came, mode) = queue.remove(chooser.below(queue.len() as u64) as usize);
                history
                    .waiters
                    .push(waiter(&format!("c{came}"), mode, came, Some(position)));
            }
            _ => {}
        }
        while let Some(&(came, mode)) = queue.first()
            && holding
                .iter()
                .all(|&index| shareable(history.holds[index].mode, mode))
        {
            queue.remove(0);
            holding.push(history.holds.len());
            history.holds.push(arrived(
                came,
                hold(&format!("c{came}"), mode, came, position, None),
            ));
        }
    }
    for (came, mode) in queue {
        history
            .waiters
            .push(waiter(&format!("c{came}"), mode, came, None));
    }
    history
}

proptest! {
    #[test]
    fn history_of_a_correct_lock_is_valid(seed: u64) {
        prop_assert_eq!(check(&random_history(seed)), Verdict::Valid);
    }
}

#[test]
fn hold_extended_to_the_end_is_caught() {
    let caught = (0..100)
        .filter(|&seed| {
            let mut history = random_history(seed);
            let last = history.holds.len() - 1;
            let index = Chooser::new(seed).below(last as u64) as usize;
            history.holds[index].end = End::Lasting;
            matches!(check(&history), Verdict::Violated(_))
        })
        .count();
    assert!(caught > 80, "of 100 wrong histories {caught} were caught");
}

#[test]
fn contender_admitted_on_arrival_is_caught() {
    let caught = (0..100)
        .filter(|&seed| {
            let mut history = random_history(seed);
            let waited = |hold: &&mut Hold| hold.began > hold.arrived;
            let Some(early) = history.holds.iter_mut().filter(waited).last() else {
                return true;
            };
            early.began = early.arrived;
            matches!(check(&history), Verdict::Violated(_))
        })
        .count();
    assert!(caught > 80, "of 100 wrong histories {caught} were caught");
}
