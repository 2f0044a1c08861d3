//! A stream delivers each event of its session once, in order, or reports that events are missing.

use lock_history::Position;
use znode_store::{LockMode, Store, Zxid};

use super::*;
use crate::journal::{EVENT_BYTES, NoPosition};

const ONE: SessionId = SessionId(1);
const TWO: SessionId = SessionId(2);

fn events(backlog: usize) -> Arc<SessionEvents> {
    events_within(SessionEventsConfig {
        backlog,
        backlog_bytes: 1 << 20,
        streams_per_session: 2,
        streams_per_node: 3,
    })
}

fn events_within(config: SessionEventsConfig) -> Arc<SessionEvents> {
    let journal = Arc::new(Journal::new(&config));
    Arc::new(SessionEvents::new(config, journal))
}

/// The events of one command.
fn add(events: &SessionEvents, zxid: u64, command: &[Event]) {
    let wake = |session, number| events.written(session, number);
    events.journal.write(Zxid(zxid), 7, &mut command.to_vec(), wake);
}

fn hold(session: SessionId, token: u64) -> Arc<Hold> {
    Arc::new(Hold {
        lock: LockName::parse("a").unwrap(),
        holder: "h".into(),
        session,
        session_name: "".into(),
        mode: LockMode::Exclusive,
        permits: 1,
        fencing_token: Zxid(token),
        owner: "".into(),
        note: "".into(),
        address: "".into(),
        since_ms: Some(1),
    })
}

fn granted(session: SessionId, token: u64) -> Event {
    Event::HoldBegan(hold(session, token))
}

fn over(session: SessionId, how: ContenderEnd) -> [Event; 2] {
    let hold = hold(session, 1);
    let (lock, holder) = (hold.lock.clone(), hold.holder.to_string());
    [
        Event::HoldEnded {
            hold,
            how: how.clone(),
            by: None,
        },
        Event::ContenderEnded {
            session,
            lock,
            holder,
            how,
        },
    ]
}

/// One grant to the session at each of the positions.
fn happen(events: &SessionEvents, session: SessionId, zxids: std::ops::RangeInclusive<u64>) {
    for zxid in zxids {
        add(events, zxid, &[granted(session, zxid)]);
    }
}

fn after(text: &str) -> EventPosition {
    text.parse().unwrap()
}

fn ids(taken: &[StoredEvent]) -> Vec<String> {
    taken.iter().map(|kept| kept.at.to_string()).collect()
}

#[test]
fn positions_parse_as_they_print_and_are_ordered() {
    let all = ["0", "3.0", "3.1", "3.17", "3.w0", "3.w9", "3", "4.1"];
    for pair in all.windows(2) {
        assert!(after(pair[0]) < after(pair[1]), "{pair:?}");
    }
    for text in all {
        assert_eq!(after(text).to_string(), text);
    }
    let large = "18446744073709551615.w2147483647";
    for text in [
        "", ".", "3.", ".1", "3.w", "3.x1", "-3", "+3", "3.+1", "3 ", "3.1.1", large,
    ] {
        assert_eq!(text.parse::<EventPosition>(), Err(NoPosition), "{text:?}");
    }
}

#[test]
fn a_session_gets_only_its_own_events() {
    let events = events(100);
    let follower = events.follow(ONE, after("0")).unwrap();
    let lost = over(TWO, ContenderEnd::Released);
    let ended = Event::SessionEnded {
        session: ONE,
        expired: true,
    };
    let [_, left] = over(ONE, ContenderEnd::Withdrawn);
    let command = [&lost[0], &lost[1], &granted(ONE, 5), &left, &ended].map(Event::clone);
    add(&events, 5, &command);
    let (taken, more) = follower.take(10).unwrap();
    assert_eq!(ids(&taken), ["5.2", "5.3", "5.4"]);
    assert!(!more);
    assert_eq!(taken[0].event, SessionEvent::Granted(hold(ONE, 5)));
    assert!(matches!(taken[1].event, SessionEvent::LeftQueue { .. }));
    assert_eq!(taken[2].event, SessionEvent::Ended { expired: true });
    let other = events.follow(TWO, after("0")).unwrap();
    let (taken, _) = other.take(10).unwrap();
    assert_eq!(ids(&taken), ["5.1"], "the end of a hold is one event");
    assert_eq!(events.counts().told, 4);
}

#[test]
fn an_upgrade_is_a_grant_and_no_loss() {
    let events = events(100);
    let follower = events.follow(ONE, after("0")).unwrap();
    let [upgraded, _] = over(ONE, ContenderEnd::Upgraded);
    let grant = |mode| Grant {
        lock: LockName::parse("a").unwrap(),
        holder: "h".into(),
        mode,
        fencing_token: Zxid(5),
        holds: 1,
        permits: 1,
    };
    let changed = |mode| Event::ModeChanged {
        session: ONE,
        grant: grant(mode),
    };
    let command = [upgraded, changed(LockMode::Exclusive), granted(ONE, 5)];
    add(&events, 5, &command);
    add(&events, 6, &[changed(LockMode::Shared)]);
    let (taken, _) = follower.take(10).unwrap();
    let told: Vec<_> = taken.into_iter().map(|kept| kept.event).collect();
    let downgraded = SessionEvent::Downgraded(grant(LockMode::Shared));
    assert_eq!(told, [SessionEvent::Granted(hold(ONE, 5)), downgraded]);
}

#[test]
fn stream_resumes_after_the_last_delivered_event() {
    let events = events(100);
    happen(&events, ONE, 1..=9);
    let follower = events.follow(ONE, after("4.1")).unwrap();
    let (taken, more) = follower.take(3).unwrap();
    assert_eq!(
        (ids(&taken), more),
        (vec!["5.1".into(), "6.1".into(), "7.1".into()], true)
    );
    let (taken, more) = follower.take(3).unwrap();
    assert_eq!((ids(&taken), more), (vec!["8.1".into(), "9.1".into()], false));
    assert!(follower.take(3).unwrap().0.is_empty());
    happen(&events, ONE, 10..=10);
    assert_eq!(ids(&follower.take(3).unwrap().0), ["10.1"]);
}

#[test]
fn stream_learns_of_removed_events() {
    let events = events(3);
    let (slow, quick) = (
        events.follow(ONE, after("0")).unwrap(),
        events.follow(ONE, after("0")).unwrap(),
    );
    happen(&events, ONE, 1..=3);
    assert_eq!(quick.take(10).unwrap().0.len(), 3);
    assert!(events.knows_all_after(after("0")));
    // An event of another session takes the place of the first.
    happen(&events, TWO, 4..=4);
    assert_eq!(slow.take(10), Err(StreamLost::TooSlow));
    assert_eq!(slow.take(10), Err(StreamLost::TooSlow), "for good");
    assert!(quick.take(10).unwrap().0.is_empty(), "it got the first event");
    for (position, known) in [
        ("0", false),
        ("1.0", false),
        ("1.1", true),
        ("1", true),
        ("4", true),
    ] {
        assert_eq!(events.knows_all_after(after(position)), known, "{position}");
    }
    assert!(events.has_any_after(ONE, after("2.1")));
    assert!(!events.has_any_after(ONE, after("3.1")));
    let counts = events.counts();
    assert_eq!((counts.kept, counts.streams), (3, 2));
}

#[test]
fn memory_is_bounded_whatever_happens() {
    let events = events_within(SessionEventsConfig {
        backlog_bytes: 10 * EVENT_BYTES,
        ..SessionEventsConfig::default()
    });
    for session in 1..1000 {
        happen(&events, SessionId(session), session..=session);
    }
    let counts = events.counts();
    assert!(
        counts.kept < 10 && counts.kept_bytes <= 10 * EVENT_BYTES,
        "{counts:?}"
    );
}

#[test]
fn a_state_from_a_snapshot_has_no_earlier_events() {
    let events = events(100);
    let follower = events.follow(ONE, after("0")).unwrap();
    happen(&events, ONE, 1..=1);
    let now = Position { zxid: 50, time_ms: 7 };
    assert!(events.journal.state_replaced(Store::new(), now).is_some());
    events.state_replaced();
    assert_eq!(follower.take(10), Err(StreamLost::StateReplaced));
    assert!(!events.knows_all_after(after("49")));
    assert!(events.knows_all_after(after("50")));
    assert_eq!(events.counts().kept_bytes, 0);
}

#[test]
fn streams_are_bounded() {
    let events = events(100);
    assert!(!events.are_followed());
    let first = events.follow(ONE, after("0")).unwrap();
    assert!(events.are_followed());
    let _second = events.follow(ONE, after("0")).unwrap();
    let refused = events.follow(ONE, after("0")).unwrap_err();
    assert_eq!(refused, TooManyStreams::OfSession { limit: 2 });
    let other = events.follow(TWO, after("0")).unwrap();
    let refused = events.follow(TWO, after("0")).unwrap_err();
    assert_eq!(refused, TooManyStreams::OfNode { limit: 3 });
    drop((first, other));
    assert_eq!(events.counts().streams, 1);
    assert!(!events.streams.lock().followers.contains_key(&TWO));
    events.follow(ONE, after("0")).unwrap();
}

#[tokio::test]
async fn waiting_stream_is_woken() {
    let events = events(100);
    let follower = events.follow(ONE, after("0")).unwrap();
    follower.changed().await;
    assert!(follower.take(10).unwrap().0.is_empty());
    let ((), ()) = tokio::join!(follower.changed(), async { happen(&events, ONE, 1..=1) });
    assert_eq!(follower.take(10).unwrap().0.len(), 1);
    let ((), ()) = tokio::join!(follower.changed(), async { events.stop() });
    assert_eq!(follower.take(10), Err(StreamLost::NodeStops));
    let late = events.follow(TWO, after("0")).unwrap();
    assert_eq!(late.take(10), Err(StreamLost::NodeStops));
}
