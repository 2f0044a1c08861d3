//! Counters of locks at the leader, fed by events of the real state machine.

use znode_store::{
    Applied, AttemptId, Command, ContenderNames, EntryContext, Identities, LockCommand, LockMode, LockWish,
    Password, Reply, Request, SessionId, WithdrawCause,
};

use super::*;
use crate::AppliedCommand;

/// State, and the counters of its locks.
struct World {
    store: Store,
    meters: LockCounters,
    now_ms: u64,
    attempts: u64,
}

impl World {
    fn new(prefixes: &[&str]) -> Self {
        let prefixes: Vec<String> = prefixes.iter().map(|prefix| (*prefix).to_owned()).collect();
        let mut world = Self {
            store: Store::new(),
            meters: LockCounters::new(&prefixes),
            now_ms: 1_000_000,
            attempts: 0,
        };
        for session in 1..=3 {
            world.apply(
                None,
                Command::OpenSession {
                    session: SessionId(session),
                    password: Password([0; 16]),
                    timeout_ms: 10_000,
                    name: "".into(),
                    address: "".into(),
                },
            );
        }
        world
    }

    fn apply(&mut self, session: Option<u64>, command: Command) -> Applied {
        let timed_out = AppliedCommand::from(&command) == AppliedCommand::TimesOut;
        let entry = EntryContext {
            time_ms: self.now_ms,
            term: 1,
        };
        let request = Request {
            session: session.map(SessionId),
            request_id: None,
            caller: Identities::none(),
            command,
        };
        let mut events = Vec::new();
        let applied = self.store.apply(&entry, request, &mut events);
        self.meters.count(&self.store, timed_out, &events);
        applied
    }

    fn lock(&mut self, session: u64, command: LockCommand) -> Applied {
        self.apply(Some(session), Command::Lock(command))
    }

    /// Returns the name of the contender, and the call.
    fn acquire(&mut self, session: u64, lock: &str) -> (String, AttemptId) {
        self.attempts += 1;
        let attempt = AttemptId(self.attempts);
        let command = LockCommand::Acquire {
            wish: LockWish {
                lock: LockName::parse(lock).unwrap(),
                mode: LockMode::Exclusive,
                permits: 1,
                owner: "".into(),
                reentrant: false,
                names: ContenderNames::Mutex,
                note: "".into(),
                address: "10.0.0.1".into(),
                lock_delay_ms: 0,
            },
            guid: self.attempts.into(),
            attempt,
            wait: true,
        };
        match self.lock(session, command).outcome.unwrap() {
            Reply::Granted(grant) => (grant.holder, attempt),
            Reply::Queued(place) => (place.holder, attempt),
            other => panic!("{other}"),
        }
    }

    fn release(&mut self, session: u64, lock: &str, holder: String) {
        let lock = LockName::parse(lock).unwrap();
        let released = self.lock(session, LockCommand::Release { lock, holder });
        released.outcome.unwrap();
    }
}

fn counted(counters: &[Counter; ENDS.len()]) -> Vec<(&'static str, u64)> {
    let counted = ENDS.iter().zip(counters);
    let counted = counted.map(|(end, counter)| (*end, counter.get()));
    counted.filter(|(_, count)| *count > 0).collect()
}

#[test]
fn waits_and_holds_are_measured_by_the_time_of_the_state() {
    let mut world = World::new(&[]);
    let (first, _) = world.acquire(1, "a");
    world.now_ms += 200;
    let (second, _) = world.acquire(2, "a");
    world.now_ms += 300;
    world.release(1, "a", first);
    world.now_ms += 4_000;
    world.release(2, "a", second);
    let all = &world.meters.all;
    assert_eq!(all.grants.get(), 2);
    let waits = all.waits.measured();
    assert_eq!(
        (waits.count(), waits.sum),
        (1, 0.3),
        "the first one has not waited"
    );
    let holds = all.holds.measured();
    assert_eq!((holds.count(), holds.sum), (2, 4.5));
    assert_eq!(counted(&all.holds_ended), [("released", 2)]);
    assert_eq!(counted(&all.waits_ended), []);
}

#[test]
fn a_wait_that_ends_without_the_lock_has_its_reason() {
    let mut world = World::new(&[]);
    let _holder = world.acquire(1, "a");
    for cause in [WithdrawCause::TimedOut, WithdrawCause::Abandoned] {
        let (holder, attempt) = world.acquire(2, "a");
        let lock = LockName::parse("a").unwrap();
        // The answer to a wait that is over is a refusal.
        let _ = world.lock(
            2,
            LockCommand::Withdraw {
                lock,
                holder,
                attempt,
                cause,
            },
        );
    }
    let _third = world.acquire(3, "a");
    world.apply(
        None,
        Command::CloseSession {
            session: SessionId(3),
        },
    );
    let (ended, as_of) = (SessionId(1), world.store.zxid());
    world.apply(
        None,
        Command::ExpireSessions {
            sessions: vec![ended],
            term: 1,
            as_of,
        },
    );
    let all = &world.meters.all;
    assert_eq!(
        counted(&all.waits_ended),
        [("withdrawn", 1), ("timed_out", 1), ("session_closed", 1)]
    );
    assert_eq!(counted(&all.holds_ended), [("session_expired", 1)]);
}

#[test]
fn locks_below_a_prefix_are_counted_twice_and_others_once() {
    let mut world = World::new(&["orders/", "orders/eu/"]);
    for lock in ["orders/1", "orders/eu/1", "other"] {
        world.acquire(1, lock);
    }
    assert_eq!(world.meters.all.grants.get(), 3);
    let below: Vec<u64> = world
        .meters
        .below
        .iter()
        .map(|(_, counters)| counters.grants.get())
        .collect();
    assert_eq!(below, [2, 1]);
}
