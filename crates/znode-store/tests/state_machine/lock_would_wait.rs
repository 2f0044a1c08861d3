//! Tests that `would_wait_behind` predicts waits. The scripts and `lock_property` check with every request that no call is predicted to
//! wait that does not; here: calls that wait are predicted to.

use znode_store::{
    AttemptId, Command, EntryContext, LockCommand, LockMode, LockName, LockWish, Outcome, Password, Reply,
    Request, RequestId, SessionId, Store,
};

struct World {
    store: Store,
    calls: u64,
}

impl World {
    /// With the sessions 1 to 4.
    fn new() -> Self {
        let mut world = Self {
            store: Store::new(),
            calls: 0,
        };
        for session in 1..=4 {
            let command = Command::OpenSession {
                session: SessionId(session),
                password: Password([0; 16]),
                timeout_ms: 1,
                name: "".into(),
                address: "".into(),
            };
            world
                .apply(Request::anonymous(command))
                .expect("the session is new");
        }
        world
    }

    fn apply(&mut self, request: Request) -> Outcome {
        let entry = EntryContext { time_ms: 0, term: 1 };
        self.store.apply(&entry, request, &mut Vec::new()).outcome
    }

    fn request(&mut self, session: u64, mode: LockMode, wait: bool) -> Request {
        self.calls += 1;
        let wish = LockWish {
            lock: LockName::parse("job").expect("the name is legal"),
            mode,
            permits: 1,
            owner: "".into(),
            reentrant: matches!(mode, LockMode::Exclusive | LockMode::Shared),
            note: "".into(),
            address: "".into(),
            lock_delay_ms: 0,
            names: Default::default(),
        };
        Request {
            session: Some(SessionId(session)),
            ..Request::anonymous(Command::Lock(LockCommand::Acquire {
                wish,
                guid: self.calls.into(),
                attempt: AttemptId(self.calls),
                wait,
            }))
        }
    }

    /// Returns the prediction, and the number of waiters ahead in fact; `None`: it does not wait.
    fn acquire(&mut self, session: u64, mode: LockMode) -> (Option<usize>, Option<usize>) {
        let request = self.request(session, mode, true);
        let said = self.store.would_wait_behind(&request);
        let waits = match self.apply(request) {
            Ok(Reply::Queued(place)) => Some(place.ahead as usize),
            Ok(Reply::Granted(_)) => None,
            other => panic!("{other:?}"),
        };
        (said, waits)
    }
}

#[test]
fn waits_are_predicted() {
    let mut world = World::new();
    for expected in [None, Some(0), Some(1), Some(2)] {
        let session = world.calls + 1;
        assert_eq!(world.acquire(session, LockMode::Exclusive), (expected, expected));
    }
    // The first one enters its own lock again, and does not wait.
    assert_eq!(world.acquire(1, LockMode::Exclusive), (None, None));
}

#[test]
fn reader_would_wait_behind_a_waiting_writer_only() {
    let mut world = World::new();
    assert_eq!(world.acquire(1, LockMode::Shared), (None, None));
    assert_eq!(world.acquire(2, LockMode::Shared), (None, None));
    assert_eq!(world.acquire(3, LockMode::Exclusive), (Some(0), Some(0)));
    assert_eq!(world.acquire(4, LockMode::Shared), (Some(1), Some(1)));
}

#[test]
fn semaphore_without_a_named_limit_uses_the_present_one() {
    let mut world = World::new();
    let named = LockMode::Semaphore { limit: 2 };
    let in_force = LockMode::Semaphore { limit: 0 };
    assert_eq!(world.acquire(1, named), (None, None));
    assert_eq!(world.acquire(2, in_force), (None, None));
    assert_eq!(world.acquire(3, in_force), (Some(0), Some(0)));
    assert_eq!(world.acquire(4, named), (Some(1), Some(1)));
}

#[test]
fn calls_without_wait_are_not_predicted_to_wait() {
    let mut world = World::new();
    world.acquire(1, LockMode::Exclusive);
    let mut request = world.request(2, LockMode::Exclusive, false);
    assert_eq!(world.store.would_wait_behind(&request), None);

    // A repetition does not wait: its recorded outcome may be a grant.
    let mut again = world.request(2, LockMode::Exclusive, true);
    assert_eq!(world.store.would_wait_behind(&again), Some(0));
    request.request_id = Some(RequestId::parse("first").expect("the id is legal"));
    again.request_id = request.request_id.clone();
    world.apply(request).expect_err("the lock is held");
    assert_eq!(world.store.would_wait_behind(&again), None);
}
