use lock_history::Position;
use znode_store::{Acl, ContenderEnd, Hold, LockMode, Store, ZnodeEvent, ZnodeEventKind, Zxid};

use crate::config::SessionEventsConfig;

use super::*;

fn event_feed() -> EventFeed {
    EventFeed::new(Arc::new(Journal::new(&SessionEventsConfig::default())))
}

/// The events of one command.
fn add(feed: &EventFeed, zxid: u64, time_ms: u64, events: &[Event]) {
    if feed
        .journal
        .write(Zxid(zxid), time_ms, &mut events.to_vec(), |_, _| {})
    {
        feed.changed();
    }
}

const SESSION: SessionId = SessionId(7);

fn hold(lock: &str, holder: &str) -> Arc<Hold> {
    Arc::new(Hold {
        lock: LockName::parse(lock).unwrap(),
        holder: holder.into(),
        session: SESSION,
        session_name: "".into(),
        mode: LockMode::Exclusive,
        permits: 1,
        fencing_token: Zxid(1),
        owner: "".into(),
        note: "".into(),
        address: "".into(),
        since_ms: Some(1),
    })
}

fn created(path: &str) -> Event {
    Event::Znode(ZnodeEvent {
        kind: ZnodeEventKind::Created,
        path: ZPath::parse(path).unwrap(),
        acl: Acl::open(),
    })
}

fn began(lock: &str) -> Event {
    Event::HoldBegan(hold(lock, "x-0000000001"))
}

fn locks(events: &FeedPage) -> Vec<String> {
    let lock = |happening: &FeedEvent| happening.what.lock().unwrap().to_string();
    events.latest.iter().map(lock).collect()
}

fn all(feed: &EventFeed, after: Option<EventPosition>, count: usize) -> FeedPage {
    feed.after(after, count, |_| true)
}

#[test]
fn contender_that_is_granted_at_once_has_not_waited() {
    let feed = event_feed();
    add(&feed, 1, 5, &[created("/locks/a/x-0000000001"), began("a")]);
    add(&feed, 2, 6, &[created("/locks/a/x-0000000002")]);
    // No contenders, all of them.
    for path in ["/locks/a", "/locks/a/b", "/elsewhere/x-0000000003", "/locks"] {
        add(&feed, 3, 7, &[created(path)]);
    }
    let told = all(&feed, None, 10);
    let what: Vec<_> = told.latest.iter().map(|it| (it.time_ms, &it.what)).collect();
    assert!(matches!(
        what[..],
        [
            (
                5,
                FeedEventKind::ToSession {
                    event: SessionEvent::Granted(_),
                    ..
                }
            ),
            (6, FeedEventKind::Queued { .. })
        ]
    ));
    assert_eq!(locks(&told), ["a", "a"]);
}

#[test]
fn the_end_of_a_hold_is_one_event() {
    let feed = event_feed();
    let over = hold("a", "x-0000000001");
    add(
        &feed,
        1,
        5,
        &[
            Event::HoldEnded {
                hold: over.clone(),
                how: ContenderEnd::Released,
                by: None,
            },
            Event::ContenderEnded {
                session: SESSION,
                lock: over.lock.clone(),
                holder: over.holder.to_string(),
                how: ContenderEnd::Released,
            },
        ],
    );
    assert_eq!(all(&feed, None, 10).latest.len(), 1);
}

#[test]
fn page_has_the_latest_events_and_whether_there_are_more() {
    let feed = event_feed();
    for zxid in 1..=4 {
        add(&feed, zxid, 5, &[began(&format!("a{zxid}"))]);
    }
    let two = all(&feed, None, 2);
    assert_eq!((locks(&two), two.more), (vec!["a3".into(), "a4".into()], true));
    let rest = all(&feed, Some(EventPosition::all_of(Zxid(2))), 2);
    assert_eq!((locks(&rest), rest.more), (vec!["a3".into(), "a4".into()], false));
    let chosen = feed.after(None, 2, |it| it.at < EventPosition::all_of(Zxid(1)));
    assert_eq!((locks(&chosen), chosen.more), (vec!["a1".into()], false));
}

#[test]
fn missing_events_are_reported() {
    let feed = event_feed();
    for zxid in 1..=(MAX_FEED_EVENTS as u64 + 2) {
        add(&feed, zxid, 5, &[began("a")]);
    }
    assert!(all(&feed, Some(EventPosition::all_of(Zxid(1))), usize::MAX).more);
    let rest = all(&feed, Some(EventPosition::all_of(Zxid(2))), usize::MAX);
    assert_eq!((rest.latest.len(), rest.more), (MAX_FEED_EVENTS, false));
    let now = Position {
        zxid: 9_000,
        time_ms: 5,
    };
    assert!(feed.journal.state_replaced(Store::new(), now).is_some());
    let after = all(&feed, Some(EventPosition::all_of(Zxid(8_999))), 10);
    assert_eq!((after.latest.len(), after.more), (0, true));
}

#[test]
fn subscribers_are_bounded() {
    let feed = event_feed();
    let mut subscribers: Vec<_> = (0..MAX_FEED_SUBSCRIBERS)
        .map(|_| feed.subscribe().unwrap())
        .collect();
    assert_eq!(feed.subscribe().unwrap_err(), TooManyFeedSubscribers);
    subscribers.pop();
    assert!(feed.subscribe().is_ok());
    assert!(!subscribers[0].has_changed().unwrap());
    add(&feed, 1, 5, &[began("a")]);
    assert!(subscribers[0].has_changed().unwrap());
}
