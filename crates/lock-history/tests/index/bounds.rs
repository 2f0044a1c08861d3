//! Tests of the ring, of gaps, and of their persistence over restarts.

use std::ops::RangeInclusive;

use lock_history::{End, HistoryGap, Index, IndexError, MAX_GAPS};
use tempfile::TempDir;
use znode_store::{ContenderEnd, Hold};

use crate::support::{OWNER, at, bounds, hold, lock, open, report, tokens};

#[test]
fn oldest_records_beyond_the_limit_are_evicted_for_good() {
    let dir = TempDir::new().unwrap();
    let mut index = open(&dir, 3);
    for token in 1..=5 {
        report(&mut index, "a", token * 10, token * 10 + 5);
    }
    assert_eq!(tokens(&mut index, "a"), [50, 40, 30]);
    assert_eq!(index.page(&lock("a"), None, 9).unwrap().since, at(25));
    index.shut().unwrap();
    let mut index = open(&dir, 3);
    assert_eq!(tokens(&mut index, "a"), [50, 40, 30]);
    // A node repeats the events of commands that it applies again.
    for token in 1..=5 {
        report(&mut index, "a", token * 10, token * 10 + 5);
    }
    assert_eq!(tokens(&mut index, "a"), [50, 40, 30]);
    assert_eq!(index.reached(), at(55));
}

#[test]
fn many_holds_of_some_locks_evict_none_of_the_last_holds_of_others() {
    let dir = TempDir::new().unwrap();
    let mut index = open(&dir, 1_000);
    let quiet: Vec<String> = (0..20).map(|team| format!("team-{team}/job")).collect();
    let mut now = 0;
    let mut hold_once = |index: &mut Index, name: &str| {
        now += 2;
        report(index, name, now - 1, now);
    };
    // Three of each, between them and behind them those of one busy program with many locks.
    for round in 0..3 {
        for name in &quiet {
            hold_once(&mut index, name);
        }
        for number in 0..700 {
            hold_once(&mut index, &format!("busy/{round}-{}", number % 64));
        }
    }
    let check = |index: &mut Index| {
        assert_eq!(index.len(), 1_000);
        let share_of_busy = index.page(&lock("busy/0-0"), None, 9).unwrap().since;
        assert!(share_of_busy.zxid > 1_000, "{share_of_busy:?}");
        let kept = |index: &mut Index| quiet.iter().filter(|name| tokens(index, name).len() == 3).count();
        // One or two of twenty names may be in the busy share.
        assert!(kept(index) >= 17, "{}", kept(index));
    };
    check(&mut index);
    index.shut().unwrap();
    check(&mut open(&dir, 1_000));
}

#[test]
fn records_beyond_the_maximum_age_are_evicted() {
    let dir = TempDir::new().unwrap();
    let mut bounds = bounds(100);
    bounds.max_age = std::time::Duration::from_secs(10);
    let mut index = Index::open(&dir.path().join("history"), OWNER, bounds).unwrap();
    report(&mut index, "a", 1, 5);
    report(&mut index, "b", 2, 6);
    index.remove_expired(15_000).unwrap();
    assert_eq!(
        (tokens(&mut index, "a"), tokens(&mut index, "b")),
        (vec![1], vec![2])
    );
    index.remove_expired(15_001).unwrap();
    assert_eq!(
        (tokens(&mut index, "a"), tokens(&mut index, "b")),
        (vec![], vec![2])
    );
    assert_eq!(index.page(&lock("a"), None, 9).unwrap().since, at(5));
    assert_eq!(index.page(&lock("b"), None, 9).unwrap().since, at(0));
}

#[test]
fn open_hold_is_closed_after_restart_by_its_end_or_by_a_gap() {
    let dir = TempDir::new().unwrap();
    let mut index = open(&dir, 100);
    for token in [10, 11, 12] {
        index.began(&hold("a", token));
    }
    index.advance_to(at(12));
    index.shut().unwrap();

    let mut index = open(&dir, 100);
    let ends = index.open_holds();
    assert_eq!(ends.len(), 3);
    let known = Hold {
        since_ms: None,
        ..Hold::clone(&ends[0])
    };
    index
        .ended(&known, at(20), &ContenderEnd::Released, Some("ip:10.0.0.1"))
        .unwrap();
    assert_eq!(index.missed_until(at(12)), None, "this position is recorded");
    let gap = HistoryGap {
        after: at(12),
        until: at(30),
    };
    assert_eq!(index.missed_until(at(30)), Some(gap));
    index.hidden(&ends[1], gap.after, gap.until).unwrap();
    // A hidden end does not replace a known one.
    index.hidden(&known, gap.after, gap.until).unwrap();
    index.shut().unwrap();

    let mut index = open(&dir, 100);
    let open: Vec<_> = index
        .open_holds()
        .iter()
        .map(|hold| hold.fencing_token.0)
        .collect();
    assert_eq!(open, [12]);
    let page = index.page(&lock("a"), None, 9).unwrap();
    assert_eq!(page.gaps, [gap]);
    let hidden = End::Hidden {
        not_before: at(12),
        not_after: at(30),
    };
    assert_eq!(page.records[0].end, hidden);
    assert_eq!(
        page.records[1].hold.since_ms,
        Some(10_000),
        "known from the beginning of the hold"
    );
    assert!(
        matches!(page.records[1].end, End::Known { at: known, .. } if known == at(20)),
        "a known end stays"
    );
    // The known end of the second hold arrives late.
    let late = Hold {
        since_ms: None,
        ..Hold::clone(&ends[1])
    };
    index
        .ended(&late, at(29), &ContenderEnd::SessionExpired, None)
        .unwrap();
    let page = index.page(&lock("a"), None, 9).unwrap();
    assert_eq!(page.records.len(), 2);
    assert!(matches!(page.records[0].end, End::Known { at: known, .. } if known == at(29)));
    assert_eq!(page.records[0].hold.since_ms, Some(11_000));
}

/// A restarted node repeats the events of commands that it applies again, and misses later ones.
#[test]
fn known_end_is_not_hidden_by_a_later_gap() {
    let dir = TempDir::new().unwrap();
    let mut index = open(&dir, 100);
    report(&mut index, "a", 10, 20);
    report(&mut index, "b", 21, 25);
    index.shut().unwrap();
    let mut index = open(&dir, 100);
    let again = hold("a", 10);
    index.began(&again);
    index.advance_to(at(10));
    let gap = index.missed_until(at(40)).unwrap();
    assert_eq!((gap.after, gap.until), (at(25), at(40)));
    index.hidden(&again, gap.after, gap.until).unwrap();
    let page = index.page(&lock("a"), None, 9).unwrap();
    assert_eq!(page.records.len(), 1, "{:#?}", page.records);
    assert!(matches!(page.records[0].end, End::Known { at: known, .. } if known == at(20)));
    assert!(index.open_holds().is_empty());
}

#[test]
fn hidden_end_does_not_reappear_after_eviction_of_the_known_one() {
    let dir = TempDir::new().unwrap();
    let mut index = open(&dir, 100);
    let holds = [hold("a", 10), hold("a", 11)];
    for hold in &holds {
        index.began(hold);
    }
    index.advance_to(at(12));
    index.missed_until(at(30)).unwrap();
    for hold in &holds {
        index.hidden(hold, at(12), at(30)).unwrap();
    }
    index.commit(true).unwrap();
    index
        .ended(&holds[0], at(29), &ContenderEnd::Released, None)
        .unwrap();
    index.commit(true).unwrap();
    // A position is a second, and the maximum age is a million seconds. So only the known end is evicted; the
    // hidden end that it replaced is still on disk, beside the record of the other hold.
    index.remove_expired((1_000_000 + 30) * 1_000).unwrap();
    assert_eq!(tokens(&mut index, "a"), [11]);
    for _ in 0..2 {
        index.shut().unwrap();
        index = open(&dir, 100);
        assert_eq!(tokens(&mut index, "a"), [11]);
    }
    index.remove_expired((1_000_000 + 31) * 1_000).unwrap();
    assert!(index.is_empty());
    index.shut().unwrap();
    index = open(&dir, 100);
    assert_eq!(tokens(&mut index, "a"), [0; 0]);
    report(&mut index, "a", 40, 41);
    index.shut().unwrap();
    assert_eq!(tokens(&mut open(&dir, 100), "a"), [40]);
}

#[test]
fn time_before_the_index_is_no_gap() {
    let dir = TempDir::new().unwrap();
    let mut index = open(&dir, 100);
    assert_eq!(index.missed_until(at(1_000)), None);
    let page = index.page(&lock("a"), None, 9).unwrap();
    assert_eq!((page.gaps, page.since), (vec![], at(1_000)));
}

#[test]
fn gaps_are_bounded_and_reported_on_their_page() {
    let dir = TempDir::new().unwrap();
    let mut index = open(&dir, 1_000);
    let gaps = MAX_GAPS as u64 + 3;
    for round in 1..=gaps {
        report(&mut index, "a", round * 10, round * 10 + 1);
        index.missed_until(at(round * 10 + 5));
    }
    let page = index.page(&lock("a"), None, 2_000).unwrap();
    assert_eq!(page.gaps.len(), MAX_GAPS);
    assert_eq!(page.since, at(35));
    let page = index.page(&lock("a"), Some(gaps * 10), 2).unwrap();
    assert_eq!(page.records.len(), 2);
    let concerned: Vec<_> = page.gaps.iter().map(|gap| gap.after.zxid).collect();
    assert_eq!(concerned, [(gaps - 2) * 10 + 1, (gaps - 1) * 10 + 1]);
}

#[test]
fn holds_with_one_token_stay_on_one_page() {
    let dir = TempDir::new().unwrap();
    let mut index = open(&dir, 100);
    for (token, holder) in [(1, "a"), (2, "b"), (2, "c"), (2, "d"), (3, "e")] {
        let hold = Hold {
            holder: holder.into(),
            ..Hold::clone(&hold("a", token))
        };
        index.ended(&hold, at(9), &ContenderEnd::Released, None).unwrap();
    }
    let page = index.page(&lock("a"), None, 2).unwrap();
    let holders: Vec<_> = page.records.iter().map(|record| &*record.hold.holder).collect();
    assert_eq!(holders, ["e", "d", "c", "b"]);
    assert_eq!(page.next_before, Some(2));
    let page = index.page(&lock("a"), page.next_before, 2).unwrap();
    assert_eq!((page.records.len(), page.next_before), (1, None));
}

/// A session with many locks ends. Half of the resulting records are on disk when the node is killed, but the
/// index has not yet recorded that it reached this position.
#[test]
fn partially_recorded_command_is_not_recorded_twice() {
    const HOLDS: u64 = 1_200;
    let dir = TempDir::new().unwrap();
    let end = |index: &mut Index, tokens: RangeInclusive<u64>| {
        for token in tokens {
            let ended = &ContenderEnd::SessionExpired;
            index.ended(&hold("a", token), at(9_999), ended, None).unwrap();
        }
    };
    let mut index = open(&dir, 10_000);
    end(&mut index, 1..=HOLDS / 2);
    index.commit(false).unwrap();
    end(&mut index, HOLDS / 2 + 1..=HOLDS);
    drop(index);
    let mut index = open(&dir, 10_000);
    assert_eq!(index.len() as u64, HOLDS / 2);
    assert_eq!(index.reached().zxid, 0);
    end(&mut index, 1..=HOLDS);
    index.advance_to(at(9_999));
    assert!(tokens(&mut index, "a").into_iter().eq((1..=HOLDS).rev()));
}

#[test]
fn index_belongs_to_one_data_directory() {
    let dir = TempDir::new().unwrap();
    let mut index = open(&dir, 100);
    report(&mut index, "a", 1, 2);
    index.shut().unwrap();
    let other = Index::open(&dir.path().join("history"), [8; 16], bounds(100));
    assert_eq!(other.map(|_| ()), Err(IndexError::Foreign));
    let aside = lock_history::set_aside(&dir.path().join("history")).unwrap();
    assert!(aside.join("db").exists());
    assert_eq!(tokens(&mut open(&dir, 100), "a"), [0; 0]);
}
