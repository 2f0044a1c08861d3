//! Property test with random lock programs on a state machine. The index receives its events; a naive
//! observer compares the holders before and after each command. Both must agree over restarts of the index,
//! repeated events, and pages of any size.

use std::collections::BTreeMap;

use lock_history::{End, HoldRecord, Index, Position};
use proptest::collection::vec;
use proptest::prelude::*;
use tempfile::TempDir;
use znode_store::{
    Acl, AttemptId, Command, ContenderEnd, CreateMode, CreatePath, Downgraded, EntryContext, Event, Hold,
    HolderId, Identities, LockCommand, LockMode, LockName, LockWish, Op, Password, Request, SessionFate,
    SessionId, Store, ZPath, Zxid,
};

use crate::support::{lock, open};

/// All in one share.
const LOCKS: [&str; 3] = ["a", "a/b", "a/c"];
const SESSIONS: u64 = 3;

#[derive(Debug, Clone)]
enum Step {
    Acquire {
        session: u64,
        lock: usize,
        mode: u8,
        note: u8,
    },
    /// Some contender of a session is released, broken or deleted.
    End {
        lock: usize,
        which: usize,
        how: u8,
    },
    /// Some holder upgrades or downgrades its lock, which gives it a new token or keeps the old one.
    Change {
        lock: usize,
        which: usize,
        upgrade: bool,
    },
    Foreign {
        session: u64,
        lock: usize,
    },
    EndSession {
        session: u64,
        expire: bool,
    },
    /// The index is closed and opened, and receives the events again from some earlier command on.
    Restart(prop::sample::Index),
    /// The index commits its batch.
    Commit,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1..=SESSIONS, 0..LOCKS.len(), 0u8..6, any::<u8>())
            .prop_map(|(session, lock, mode, note)| Step::Acquire { session, lock, mode, note }),
        8 => (0..LOCKS.len(), 0usize..6, 0u8..4).prop_map(|(lock, which, how)| Step::End { lock, which, how }),
        4 => (0..LOCKS.len(), 0usize..3, any::<bool>())
            .prop_map(|(lock, which, upgrade)| Step::Change { lock, which, upgrade }),
        2 => (1..=SESSIONS, 0..LOCKS.len()).prop_map(|(session, lock)| Step::Foreign { session, lock }),
        1 => (1..=SESSIONS, any::<bool>()).prop_map(|(session, expire)| Step::EndSession { session, expire }),
        1 => any::<prop::sample::Index>().prop_map(Step::Restart),
        2 => Just(Step::Commit),
    ]
}

type Key = (LockName, HolderId, Zxid);

fn key_of(hold: &Hold) -> Key {
    (hold.lock.clone(), hold.holder.to_string(), hold.fencing_token)
}

/// Observer that compares the holders after each command with those before it.
#[derive(Default)]
struct Naive {
    /// Current holds, each with the time of its grant.
    holding: BTreeMap<Key, u64>,
    /// Ended holds: beginning and end in milliseconds, and the zxid of the end.
    over: Vec<(Key, u64, u64, u64)>,
    /// Maximum number of holds at one time.
    max_at_once: usize,
}

impl Naive {
    fn observe(&mut self, store: &Store) {
        let mut now = BTreeMap::new();
        for name in LOCKS {
            for holder in store.lock(&lock(name)).into_iter().flat_map(|view| view.holders) {
                let key = (lock(name), holder.holder, holder.fencing_token);
                let since = self.holding.get(&key).copied().unwrap_or(store.time_ms());
                now.insert(key, since);
            }
        }
        self.max_at_once = self.max_at_once.max(now.len());
        for (key, since) in std::mem::replace(&mut self.holding, now) {
            if !self.holding.contains_key(&key) {
                self.over.push((key, since, store.time_ms(), store.zxid().0));
            }
        }
    }
}

/// Position and events of one command.
type CommandEvents = (Position, Vec<Event>);

fn report(index: &mut Index, (position, events): &CommandEvents) {
    for event in events {
        match event {
            Event::HoldBegan(hold) => index.began(hold),
            Event::HoldEnded { hold, how, by } => {
                index.ended(hold, *position, how, by.as_deref()).unwrap();
            }
            _ => {}
        }
    }
    index.advance_to(*position);
}

struct World {
    store: Store,
    naive: Naive,
    reported: Vec<CommandEvents>,
    index: Option<Index>,
    dir: TempDir,
    records: usize,
    calls: u64,
    ended: BTreeMap<Key, ContenderEnd>,
}

impl World {
    fn apply(&mut self, session: Option<u64>, command: Command) {
        self.calls += 1;
        let entry = EntryContext {
            time_ms: 1_000 + self.calls * 700,
            term: 1,
        };
        let request = Request {
            session: session.map(SessionId),
            request_id: None,
            caller: Identities::none(),
            command,
        };
        let mut events = Vec::new();
        self.store.apply(&entry, request, &mut events);
        self.naive.observe(&self.store);
        for event in &events {
            if let Event::HoldEnded { hold, how, .. } = event {
                self.ended.insert(key_of(hold), how.clone());
            }
        }
        let position = Position {
            zxid: self.store.zxid().0,
            time_ms: self.store.time_ms(),
        };
        self.reported.push((position, events));
        let index = self.index.as_mut().unwrap();
        report(index, self.reported.last().unwrap());
    }

    fn live(&mut self, session: u64) -> bool {
        if self.store.session_fate(SessionId(session)) == SessionFate::Unknown {
            let command = Command::OpenSession {
                session: SessionId(session),
                password: Password([0; 16]),
                timeout_ms: 10_000,
                name: format!("session {session}").as_str().into(),
                address: "".into(),
            };
            self.apply(None, command);
        }
        self.store.session_fate(SessionId(session)) == SessionFate::Live
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Acquire {
                session,
                lock: at,
                mode,
                note,
            } => {
                if !self.live(session) {
                    return;
                }
                let mode = match mode {
                    0 | 1 => LockMode::Exclusive,
                    2 => LockMode::Shared,
                    3 | 4 => LockMode::Upgradeable,
                    _ => LockMode::Semaphore { limit: 2 },
                };
                let command = LockCommand::Acquire {
                    wish: LockWish {
                        lock: lock(LOCKS[at]),
                        mode,
                        permits: 1,
                        owner: "".into(),
                        reentrant: false,
                        note: format!("note {note}").as_str().into(),
                        address: "x".into(),
                        lock_delay_ms: 0,
                        names: Default::default(),
                    },
                    guid: self.calls.into(),
                    attempt: AttemptId(self.calls),
                    wait: true,
                };
                self.apply(Some(session), Command::Lock(command));
            }
            Step::End { lock: at, which, how } => {
                let lock = lock(LOCKS[at]);
                let Some(view) = self.store.lock(&lock) else {
                    return;
                };
                let Some(who) = view.holders.iter().chain(&view.queue).nth(which).cloned() else {
                    return;
                };
                let holder = who.holder.clone();
                let znode = ZPath::parse(&format!("/locks/{lock}/{holder}")).unwrap();
                let command = match how {
                    0 | 1 => Command::Lock(LockCommand::Release { lock, holder }),
                    2 => {
                        let (by, reason) = ("operator".into(), "broken".into());
                        Command::Lock(LockCommand::Break {
                            lock,
                            holder,
                            by,
                            reason,
                        })
                    }
                    _ => Command::Write(Op::Delete {
                        path: znode,
                        version: -1,
                    }),
                };
                self.apply(Some(who.session.0), command);
            }
            Step::Change {
                lock: at,
                which,
                upgrade,
            } => {
                let lock = lock(LOCKS[at]);
                let view = self.store.lock(&lock);
                let Some(who) = view.and_then(|view| view.holders.get(which).cloned()) else {
                    return;
                };
                let holder = who.holder;
                let command = match upgrade {
                    true => LockCommand::Upgrade {
                        lock,
                        holder,
                        attempt: AttemptId(self.calls),
                        wait: true,
                    },
                    false => LockCommand::Downgrade {
                        lock,
                        holder,
                        to: Downgraded::Upgradeable,
                    },
                };
                self.apply(Some(who.session.0), Command::Lock(command));
            }
            Step::Foreign { session, lock: at } => {
                if !self.live(session) {
                    return;
                }
                let path = format!("/locks/{}/kazoo__lock__", LOCKS[at]);
                let op = Op::Create {
                    path: CreatePath::parse(&path, true).unwrap(),
                    data: "x".into(),
                    acl: Acl::open(),
                    mode: CreateMode::EphemeralSequential,
                    parents: true,
                };
                self.apply(Some(session), Command::Write(op));
            }
            Step::EndSession { session, expire } => {
                let session = SessionId(session);
                let command = match expire {
                    true => Command::ExpireSessions {
                        sessions: vec![session],
                        term: 1,
                        as_of: Zxid(u64::MAX),
                    },
                    false => Command::CloseSession { session },
                };
                self.apply(None, command);
            }
            Step::Restart(from) => {
                self.index.take().unwrap().shut().unwrap();
                let mut index = open(&self.dir, self.records);
                for reported in &self.reported[from.index(self.reported.len() + 1)..] {
                    report(&mut index, reported);
                }
                self.index = Some(index);
            }
            Step::Commit => self.index.as_mut().unwrap().commit(false).unwrap(),
        }
    }

    fn check(&mut self, page_length: usize) {
        let index = self.index.as_mut().unwrap();
        // The index keeps the holds that ended last; of holds that ended together, those reported last.
        let mut expected = self.naive.over.clone();
        let events = self.reported.iter().flat_map(|(_, events)| events);
        let ends = events.filter_map(|event| match event {
            Event::HoldEnded { hold, .. } => Some(key_of(hold)),
            _ => None,
        });
        let places: BTreeMap<Key, usize> = ends.enumerate().map(|(place, key)| (key, place)).collect();
        expected.sort_by_key(|(key, ..)| places[key]);
        let kept = expected.split_off(expected.len().saturating_sub(self.records));
        assert_eq!(index.len(), kept.len());
        for name in LOCKS {
            let mut of_lock: Vec<_> = kept.iter().filter(|(key, ..)| key.0 == lock(name)).collect();
            of_lock.sort_by_key(|(key, ..)| std::cmp::Reverse((key.2, key.1.clone())));
            let mut found: Vec<HoldRecord> = Vec::new();
            let mut before = None;
            loop {
                let page = index.page(&lock(name), before, page_length).unwrap();
                assert!(page.gaps.is_empty());
                found.extend(page.records);
                before = page.next_before;
                if before.is_none() {
                    break;
                }
            }
            let seen: Vec<_> = found
                .iter()
                .map(|HoldRecord { hold, end }| {
                    let key = key_of(hold);
                    let End::Known { at, how, .. } = end else {
                        panic!("no snapshot hid an end, but the record says {end:?}")
                    };
                    assert_eq!(Some(how), self.ended.get(&key));
                    // Of a hold that began while the index was full, only the end is known.
                    let since_ms = hold.since_ms.unwrap_or_else(|| {
                        assert!(
                            self.naive.max_at_once > self.records,
                            "the beginning was recorded"
                        );
                        let (_, since_ms, ..) =
                            self.naive.over.iter().find(|(over, ..)| *over == key).unwrap();
                        *since_ms
                    });
                    (key, since_ms, at.time_ms, at.zxid)
                })
                .collect();
            assert!(seen.iter().eq(of_lock), "{name}: {seen:#?}");
        }
        let mut open: Vec<Key> = index.open_holds().iter().map(|hold| key_of(hold)).collect();
        open.sort();
        let holding: Vec<Key> = self.naive.holding.keys().cloned().collect();
        if self.records > self.naive.max_at_once {
            assert_eq!(open, holding);
        } else {
            // Holds that began while the index was full are not among them.
            assert!(open.len() <= self.records);
            assert!(open.iter().all(|hold| holding.contains(hold)), "{open:#?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..Default::default() })]

    #[test]
    fn index_agrees_with_a_naive_observer(
        steps in vec(any_step(), 1..80),
        records in prop_oneof![Just(6usize), Just(1_000)],
        page_length in 1usize..5,
    ) {
        let dir = TempDir::new().unwrap();
        let index = Some(open(&dir, records));
        let mut world = World {
            store: Store::new(),
            naive: Naive::default(),
            reported: Vec::new(),
            index,
            dir,
            records,
            calls: 0,
            ended: BTreeMap::new(),
        };
        for step in steps {
            world.step(step);
        }
        world.check(page_length);
    }
}
