//! The limits of locks, reached for real. Too many steps for a script.

use znode_store::{
    AttemptId, Command, EntryContext, Event, Identities, LockCommand, LockMode, LockName, LockWish,
    MAX_ADDRESS_BYTES, MAX_CONTENDERS, MAX_GRANTED_AT_ONCE, MAX_GRAPH_WAITS, MAX_HOLDS, MAX_NAMED_HOLDERS,
    MAX_NOTE_BYTES, MAX_OWNER_BYTES, Outcome, Password, Refusal, Reply, Request, SessionId, Store,
};

use crate::replicas::{draw, restore};

struct World {
    store: Store,
    calls: u64,
    events: Vec<Event>,
}

impl World {
    /// With the sessions 1 and 2.
    fn new() -> Self {
        let mut world = Self {
            store: Store::new(),
            calls: 0,
            events: Vec::new(),
        };
        for session in [1, 2] {
            let command = Command::OpenSession {
                session: SessionId(session),
                password: Password([0; 16]),
                timeout_ms: 1,
                name: "".into(),
                address: "".into(),
            };
            world.apply(None, command).expect("the session is new");
        }
        world
    }

    fn apply(&mut self, session: Option<u64>, command: Command) -> Outcome {
        self.events.clear();
        let request = Request {
            session: session.map(SessionId),
            request_id: None,
            caller: Identities::none(),
            command,
        };
        let entry = EntryContext { time_ms: 0, term: 1 };
        self.store.apply(&entry, request, &mut self.events).outcome
    }

    fn acquire(&mut self, session: u64, wish: LockWish, wait: bool) -> Outcome {
        self.calls += 1;
        let (guid, attempt) = (self.calls.into(), AttemptId(self.calls));
        let acquire = LockCommand::Acquire {
            wish,
            guid,
            attempt,
            wait,
        };
        self.apply(Some(session), Command::Lock(acquire))
    }

    fn release(&mut self, session: u64, holder: &str) -> Outcome {
        let (lock, holder) = (lock(), holder.into());
        self.apply(
            Some(session),
            Command::Lock(LockCommand::Release { lock, holder }),
        )
    }

    fn holder(&self, at: usize) -> String {
        let view = self.store.lock(&lock()).expect("the lock is in use");
        view.holders[at].holder.clone()
    }

    fn granted(&self) -> usize {
        self.events
            .iter()
            .filter(|event| matches!(event, Event::Granted { .. }))
            .count()
    }
}

fn lock() -> LockName {
    LockName::parse("job").expect("the name is legal")
}

fn wish(mode: LockMode, reentrant: bool) -> LockWish {
    LockWish {
        lock: lock(),
        mode,
        permits: 1,
        owner: "".into(),
        reentrant,
        note: "".into(),
        address: "".into(),
        lock_delay_ms: 0,
        names: Default::default(),
    }
}

#[test]
fn full_queue_rejects_and_is_granted_over_several_entries() {
    let mut world = World::new();
    let (reader, writer) = (wish(LockMode::Shared, false), wish(LockMode::Exclusive, true));
    world.acquire(1, writer.clone(), true).unwrap();
    for _ in 1..MAX_CONTENDERS {
        assert!(matches!(
            world.acquire(2, reader.clone(), true),
            Ok(Reply::Queued(_))
        ));
    }
    assert_eq!(
        world.acquire(2, reader.clone(), true),
        Err(Refusal::QueueFull(lock()))
    );
    assert!(matches!(
        world.acquire(2, reader.clone(), false),
        Err(Refusal::LockBusy { .. })
    ));
    // The graph of waits is a part of the bounds, too: its waiters wait for the writer.
    let (waits, complete) = world.store.wait_graph("");
    assert!(!complete && waits.len() == MAX_GRAPH_WAITS);
    assert!(
        waits
            .iter()
            .all(|wait| wait.waits_for.len() == 1 && !wait.waits_for[0].waits)
    );
    // Who is in it already may enter again, here by way of the index of owners.
    assert!(matches!(world.acquire(1, writer, true), Ok(Reply::Granted(grant)) if grant.holds == 2));

    let first = world.holder(0);
    world.release(1, &first).unwrap();
    world.release(1, &first).unwrap();
    let (mut granted, mut entries) = (world.granted(), 1);
    // The first grant of each command is free.
    assert_eq!(granted, MAX_GRANTED_AT_ONCE + 1);
    while world.store.unfinished_grants().next().is_some() {
        // What comes meanwhile waits behind the others.
        let late = world.acquire(2, reader.clone(), false);
        assert!(
            matches!(late, Err(Refusal::LockBusy { .. } | Refusal::QueueFull(_))),
            "{late:?}"
        );
        granted += world.granted();
        entries += 1;
    }
    assert_eq!(granted, MAX_CONTENDERS - 1);
    assert_eq!(entries, MAX_CONTENDERS.div_ceil(MAX_GRANTED_AT_ONCE + 1));
    assert_eq!(
        world.store.lock(&lock()).unwrap().holders.len(),
        MAX_CONTENDERS - 1
    );

    // A refusal names a few of them.
    let busy = world.acquire(1, wish(LockMode::Exclusive, true), false);
    assert!(matches!(busy, Err(Refusal::LockBusy { holders, .. }) if holders.len() == MAX_NAMED_HOLDERS));

    // From the middle, and after a restore.
    world.store = restore(draw(&mut world.store, 1_000));
    let middle = world.holder(MAX_CONTENDERS / 2);
    assert_eq!(world.release(2, &middle), Ok(Reply::Released { holds: 0 }));
    assert_eq!(
        world.release(2, &middle),
        Err(Refusal::NotHolder {
            lock: lock(),
            holder: middle
        })
    );
    let close = Command::CloseSession {
        session: SessionId(2),
    };
    world.apply(None, close).unwrap();
    while !world.store.ending_sessions(1).is_empty() {
        let go_on = Command::ExpireSessions {
            sessions: vec![SessionId(2)],
            term: 1,
            as_of: world.store.zxid(),
        };
        world.apply(None, go_on).unwrap();
    }
    assert_eq!(world.store.locks("", None, 1), []);
}

#[test]
fn reentrancy_count_is_bounded() {
    let mut world = World::new();
    for holds in 1..=MAX_HOLDS {
        let entered = world.acquire(1, wish(LockMode::Exclusive, true), true);
        assert!(matches!(entered, Ok(Reply::Granted(grant)) if grant.holds as usize == holds));
    }
    assert_eq!(
        world.acquire(1, wish(LockMode::Exclusive, true), true),
        Err(Refusal::TooManyHolds(lock()))
    );
    let holder = world.holder(0);
    for holds in (0..MAX_HOLDS).rev() {
        assert_eq!(
            world.release(1, &holder),
            Ok(Reply::Released { holds: holds as u32 })
        );
    }
}

#[test]
fn reentrant_acquire_and_release_repeat_without_limit() {
    let mut world = World::new();
    world.acquire(1, wish(LockMode::Exclusive, true), true).unwrap();
    let holder = world.holder(0);
    let znode = lock().znode().join(&holder).unwrap();
    for _ in 0..1_000 {
        world.acquire(1, wish(LockMode::Exclusive, true), true).unwrap();
        world.release(1, &holder).unwrap();
    }
    // What is remembered of all that is little.
    let (data, _) = world.store.get(&znode).unwrap();
    assert!(data.len() < 1_000, "{} bytes", data.len());
    assert_eq!(world.release(1, &holder), Ok(Reply::Released { holds: 0 }));
}

#[test]
fn texts_have_lengths() {
    let mut world = World::new();
    let text = |length: usize| "x".repeat(length).into();
    let wish = wish(LockMode::Exclusive, true);
    let fits = LockWish {
        owner: text(MAX_OWNER_BYTES),
        note: text(MAX_NOTE_BYTES),
        address: text(MAX_ADDRESS_BYTES).into(),
        ..wish.clone()
    };
    assert!(world.acquire(1, fits, true).is_ok());
    let owner = LockWish {
        owner: text(MAX_OWNER_BYTES + 1),
        ..wish.clone()
    };
    let note = LockWish {
        note: text(MAX_NOTE_BYTES + 1),
        ..wish.clone()
    };
    let address = LockWish {
        address: text(MAX_ADDRESS_BYTES + 1).into(),
        ..wish
    };
    for long in [owner, note, address] {
        assert!(matches!(world.acquire(1, long, true), Err(Refusal::BadWish(_))));
    }
}
