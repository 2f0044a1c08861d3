//! Merge of the histories of several servers. Each server may have discarded a part; none may
//! contradict another.

use std::collections::BTreeMap;

use super::{End, Gap, History, Hold, Waiter};

/// Returns the combined history and the contradictions between its sources. A gap remains only
/// where all sources have one.
pub fn merge(histories: &[History]) -> (History, Vec<String>) {
    let mut contradictions = Vec::new();
    let mut holds: BTreeMap<(&str, u64, &str), Hold> = BTreeMap::new();
    let mut waiters: BTreeMap<(&str, u64, &str), Waiter> = BTreeMap::new();
    for history in histories {
        for hold in &history.holds {
            let known = holds
                .entry((&hold.lock, hold.token, &hold.contender))
                .or_insert_with(|| hold.clone());
            if let Err(text) = merge_hold(known, hold) {
                contradictions.push(format!("lock {}: {text}", hold.lock));
            }
        }
        for waiter in &history.waiters {
            let known = waiters
                .entry((&waiter.lock, waiter.arrived, &waiter.contender))
                .or_insert_with(|| waiter.clone());
            known.left = known.left.or(waiter.left);
        }
    }
    // An older history still lists as a waiter a contender that a newer one lists as a holder.
    let holders: Vec<(&str, &str)> = holds
        .keys()
        .map(|(lock, _, contender)| (*lock, *contender))
        .collect();
    waiters.retain(|(lock, _, contender), _| !holders.contains(&(*lock, *contender)));
    let merged = History {
        holds: holds.into_values().collect(),
        waiters: waiters.into_values().collect(),
        gaps: common_gaps(histories),
    };
    (merged, contradictions)
}

/// Adds to `known` what another history says of the same hold.
fn merge_hold(known: &mut Hold, other: &Hold) -> Result<(), String> {
    let contradiction = || {
        Err(format!(
            "one server reports {}, another {}",
            known.describe(),
            other.describe()
        ))
    };
    let differs = |one: Option<u64>, other: Option<u64>| matches!((one, other), (Some(one), Some(other)) if one != other);
    if known.mode != other.mode || differs(known.began, other.began) || differs(known.arrived, other.arrived)
    {
        return contradiction();
    }
    let end = match (known.end, other.end) {
        (End::At(one), End::At(other)) if one != other => return contradiction(),
        (End::At(end), _) | (_, End::At(end)) => End::At(end),
        // A server without an end lags, or the hold goes on. A hidden end is certain: the hold is
        // over.
        (End::Lasting, end) | (end, End::Lasting) => end,
        (
            End::Hidden {
                not_before: a,
                not_after: b,
            },
            End::Hidden {
                not_before: c,
                not_after: d,
            },
        ) => End::Hidden {
            not_before: a.max(c),
            not_after: b.min(d),
        },
    };
    known.end = end;
    known.began = known.began.or(other.began);
    known.arrived = known.arrived.or(other.arrived);
    Ok(())
}

/// Returns the intersection of all histories' gaps.
fn common_gaps(histories: &[History]) -> Vec<Gap> {
    let mut histories = histories.iter();
    let Some(first) = histories.next() else {
        return Vec::new();
    };
    histories.fold(first.gaps.clone(), |common, history| {
        let pairs = common
            .iter()
            .flat_map(|one| history.gaps.iter().map(move |other| (one, other)));
        pairs
            .map(|(one, other)| Gap {
                after: one.after.max(other.after),
                until: one.until.min(other.until),
            })
            .filter(|gap| gap.after < gap.until)
            .collect()
    })
}
