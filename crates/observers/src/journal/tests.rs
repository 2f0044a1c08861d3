//! Readers of the journal see exactly what was written, or learn that something is missing.

use std::collections::{HashMap, VecDeque};

use znode_store::{LockName, SessionId};

use super::unread::MAX_REMOVED;
use super::*;
use crate::session_events::{SessionEventStream, SessionEvents, StreamLost};

const SESSIONS: u64 = 3;

/// Small random numbers that are the same for the same seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

fn hold(session: u64, token: u64, note: usize) -> Arc<Hold> {
    Arc::new(Hold {
        lock: LockName::parse("a").unwrap(),
        holder: "h".into(),
        session: SessionId(session),
        session_name: "".into(),
        mode: LockMode::Exclusive,
        permits: 1,
        fencing_token: Zxid(token),
        owner: "".into(),
        note: "n".repeat(note).into(),
        address: "".into(),
        since_ms: Some(1),
    })
}

fn ended(hold: Arc<Hold>, how: ContenderEnd) -> Event {
    let by = None;
    Event::HoldEnded { hold, how, by }
}

fn random_event(dice: &mut Dice, zxid: u64) -> Event {
    let session = 1 + dice.below(SESSIONS);
    let hold = hold(session, zxid, dice.below(300) as usize);
    match dice.below(5) {
        0 => Event::HoldBegan(hold),
        1 => ended(hold, ContenderEnd::Released),
        2 => ended(hold, ContenderEnd::Upgraded),
        3 => Event::SessionOpened(SessionId(session)),
        _ => Event::RevokeRequested {
            session: SessionId(session),
            lock: hold.lock.clone(),
            holder: "h".into(),
            by: "me".into(),
            reason: "r".repeat(dice.below(100) as usize).into(),
        },
    }
}

/// Session of an event that its streams deliver.
fn session_of(event: &Event) -> Option<u64> {
    match event {
        Event::HoldEnded {
            how: ContenderEnd::Upgraded,
            ..
        } => None,
        Event::HoldBegan(hold) | Event::HoldEnded { hold, .. } => Some(hold.session.0),
        Event::RevokeRequested { session, .. } => Some(session.0),
        _ => None,
    }
}

/// Stream, and the positions of the events that it must deliver next, by the model.
struct Expected {
    stream: SessionEventStream,
    undelivered: VecDeque<String>,
    is_lost: bool,
}

/// Zxids of the events that the history must read next, by the model.
#[derive(Default)]
struct History {
    unread: VecDeque<u64>,
}

fn read(reader: &HistoryReader, unread: &mut VecDeque<u64>) {
    let mut items = Vec::new();
    while !reader.take(&mut items).is_all {}
    for item in items {
        match item {
            HistoryItem::Hold { at, .. } => assert_eq!(Some(at.zxid), unread.pop_front()),
            HistoryItem::Missed { events, until } => {
                let missed: Vec<_> = unread.drain(..events as usize).collect();
                assert_eq!(missed.last(), Some(&until.zxid));
            }
            HistoryItem::Replaced { .. } => panic!("no state was replaced"),
        }
    }
}

#[test]
fn readers_see_exactly_what_was_written_or_a_gap() {
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let config = SessionEventsConfig {
            backlog: 1 + dice.below(40) as usize,
            backlog_bytes: EVENT_BYTES * (1 + dice.below(60) as usize),
            ..SessionEventsConfig::default()
        };
        let journal = Arc::new(Journal::new(&config));
        let reader = journal.read_history();
        let streams = Arc::new(SessionEvents::new(config.clone(), journal.clone()));
        let mut expected: HashMap<u64, Vec<Expected>> = HashMap::new();
        let mut history = History::default();
        // Positions of all events of sessions that the journal still has, by the model of the ring.
        let mut written: VecDeque<(Option<u64>, String)> = VecDeque::new();
        for zxid in 1..=200 {
            let mut events: Vec<_> = (0..dice.below(6))
                .map(|_| random_event(&mut dice, zxid))
                .collect();
            let mut number = 0;
            for event in &events {
                let session = session_of(event);
                number += u32::from(session.is_some());
                let at = format!("{zxid}.{number}");
                if let Some(session) = session {
                    for stream in expected.entry(session).or_default() {
                        stream.undelivered.push_back(at.clone());
                    }
                }
                if matches!(event, Event::HoldBegan(_) | Event::HoldEnded { .. }) {
                    history.unread.push_back(zxid);
                }
                written.push_back((session, at));
            }
            journal.write(Zxid(zxid), zxid, &mut events, |session, number| {
                streams.written(session, number);
            });
            assert!(events.is_empty());
            let (kept, bytes) = (streams.counts().kept, streams.counts().kept_bytes);
            assert!(
                kept <= config.backlog && bytes <= config.backlog_bytes,
                "seed {seed}"
            );
            let mut removed = None;
            while written.len() > kept {
                let (session, at) = written.pop_front().unwrap();
                for stream in expected.entry(session.unwrap_or(0)).or_default() {
                    stream.is_lost |= stream.undelivered.contains(&at);
                }
                removed = Some(at);
            }
            if let Some(at) = removed {
                assert_eq!(journal.lock().complete_after[0].to_string(), at, "seed {seed}");
            }
            match dice.below(8) {
                0 => {
                    let session = 1 + dice.below(SESSIONS);
                    let after = match written.get(dice.below(40) as usize) {
                        Some((_, at)) => at.parse().unwrap(),
                        None => EventPosition::all_of(Zxid(zxid)),
                    };
                    let is_after = |at: &String| at.parse::<EventPosition>().unwrap() > after;
                    let mine = written
                        .iter()
                        .filter(|(of, at)| *of == Some(session) && is_after(at));
                    let undelivered: VecDeque<_> = mine.map(|(_, at)| at.clone()).collect();
                    let is_any = streams.has_any_after(SessionId(session), after);
                    assert_eq!(is_any, !undelivered.is_empty(), "seed {seed}");
                    if let Ok(stream) = streams.follow(SessionId(session), after) {
                        let is_lost = false;
                        expected.entry(session).or_default().push(Expected {
                            stream,
                            undelivered,
                            is_lost,
                        });
                    }
                }
                1 => read(&reader, &mut history.unread),
                2..=5 => {
                    let session = 1 + dice.below(SESSIONS);
                    let limit = 1 + dice.below(5) as usize;
                    for stream in expected.entry(session).or_default() {
                        let taken = stream.stream.take(limit);
                        if stream.is_lost {
                            assert_eq!(taken, Err(StreamLost::TooSlow), "seed {seed}");
                            continue;
                        }
                        let (taken, more) = taken.unwrap();
                        assert_eq!(more, stream.undelivered.len() > limit, "seed {seed}");
                        assert_eq!(taken.len(), stream.undelivered.len().min(limit), "seed {seed}");
                        for event in taken {
                            assert_eq!(Some(event.at.to_string()), stream.undelivered.pop_front());
                        }
                    }
                }
                _ => {}
            }
        }
        read(&reader, &mut history.unread);
        assert!(history.unread.is_empty(), "seed {seed}");
    }
}

fn small_journal() -> Arc<Journal> {
    Arc::new(Journal::new(&SessionEventsConfig {
        backlog: 3,
        ..SessionEventsConfig::default()
    }))
}

fn write_holds(journal: &Journal, zxids: std::ops::RangeInclusive<u64>) {
    for zxid in zxids {
        journal.write(
            Zxid(zxid),
            zxid,
            &mut vec![Event::HoldBegan(hold(1, zxid, 0))],
            |_, _| {},
        );
    }
}

/// Reads everything; returns the number of holds, and of missed events with the zxid of the last.
fn read_all(reader: &HistoryReader) -> (usize, Vec<(u64, u64)>) {
    let mut items = Vec::new();
    while !reader.take(&mut items).is_all {}
    let holds = items
        .iter()
        .filter(|item| matches!(item, HistoryItem::Hold { .. }));
    let missed = items.iter().filter_map(|item| match item {
        HistoryItem::Missed { events, until } => Some((*events, until.zxid)),
        _ => None,
    });
    (holds.count(), missed.collect())
}

#[test]
fn history_that_falls_behind_learns_how_much_it_missed() {
    let journal = small_journal();
    let reader = journal.read_history();
    let most = MAX_REMOVED as u64;
    write_holds(&journal, 1..=most + 3);
    assert_eq!(read_all(&reader), (MAX_REMOVED + 3, vec![]));
    write_holds(&journal, 1..=most + 5);
    assert_eq!(read_all(&reader), (MAX_REMOVED + 3, vec![(2, most + 2)]));
    write_holds(&journal, 1..=1);
    assert_eq!(read_all(&reader), (1, vec![]));
}

#[test]
fn former_state_comes_after_the_holds_before_it() {
    let journal = small_journal();
    let reader = journal.read_history();
    write_holds(&journal, 1..=5);
    let written = journal.lock().end();
    let now = Position { zxid: 9, time_ms: 9 };
    assert!(journal.state_replaced(Store::new(), now).is_none());
    write_holds(&journal, 10..=10);
    let mut items = Vec::new();
    let mut taken = reader.take(&mut items);
    while !taken.is_all {
        taken = reader.take(&mut items);
    }
    assert!(taken.next > written + 1 && taken.next == journal.lock().end());
    let zxids: Vec<_> = items
        .iter()
        .map(|item| match item {
            HistoryItem::Hold { at, .. } | HistoryItem::Replaced { now: at, .. } => at.zxid,
            HistoryItem::Missed { until, .. } => panic!("missed until {until:?}"),
        })
        .collect();
    assert_eq!(zxids, [1, 2, 3, 4, 5, 9, 10]);
    assert!(matches!(items[5], HistoryItem::Replaced { .. }));
}

#[test]
fn journal_keeps_nothing_for_a_history_that_is_off() {
    let journal = small_journal();
    let reader = journal.read_history();
    write_holds(&journal, 1..=9);
    assert!(reader.wait(std::time::Duration::ZERO) && !reader.wait(std::time::Duration::ZERO));
    drop(reader);
    write_holds(&journal, 10..=19);
    assert!(journal.lock().unread.is_none());
    let now = Position { zxid: 9, time_ms: 9 };
    assert!(journal.state_replaced(Store::new(), now).is_some());
}
