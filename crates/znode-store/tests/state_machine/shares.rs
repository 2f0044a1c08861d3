//! Bounds on one caller's use of shared resources: the time of one entry, the visits of a page, the request cache.

#![expect(clippy::unwrap_used, reason = "a step that must succeed may say so shortly")]

use znode_store::{
    AccessCommand, Acl, AclEntry, AttemptId, Command, ContenderEnd, CreateMode, CreatePath, EntryContext,
    EntryWork, Event, Identities, Identity, Limited, LockCommand, LockMode, LockName, LockWish,
    MAX_DESCENDANTS, MAX_GRANTED_AT_ONCE, MAX_LOOKED_AT, MAX_OPERATIONS, MAX_REMOVED_AT_ONCE,
    MAX_SESSIONLESS_REQUESTS, NewToken, Op, Outcome, Password, PathGrant, Perms, Refusal, Reply, Request,
    RequestId, Right, RoleName, Rules, SessionFate, SessionId, Store, TokenHash, TokenId, ZPath,
};

use crate::replicas::{draw, restore};

const FIRST: SessionId = SessionId(1);
const SECOND: SessionId = SessionId(2);
const THIRD: SessionId = SessionId(3);

#[derive(Default)]
struct World {
    store: Store,
    work: EntryWork,
    events: Vec<Event>,
    calls: u64,
}

impl World {
    fn with_sessions(sessions: &[SessionId]) -> Self {
        let mut world = Self::default();
        sessions.iter().for_each(|session| world.open(*session, None));
        world
    }

    /// Applies a command in the present entry.
    fn apply_by(&mut self, rules: Rules, request: Request) -> Outcome {
        let entry = EntryContext { time_ms: 1, term: 1 };
        let applied = (self.store).apply_by(rules, &entry, &mut self.work, request, &mut self.events);
        applied.outcome
    }

    /// Applies a command in an entry of its own.
    fn apply(&mut self, request: Request) -> Outcome {
        self.work = EntryWork::default();
        self.events.clear();
        self.apply_by(Rules::Current, request)
    }

    fn open(&mut self, session: SessionId, token: Option<TokenId>) {
        let command = Command::OpenSession {
            session,
            password: Password([0; 16]),
            timeout_ms: 10_000,
            name: "".into(),
            address: "".into(),
        };
        self.apply(of(token, command)).unwrap();
    }

    fn acquire(&mut self, session: SessionId, lock: &str, token: Option<TokenId>) -> Reply {
        let request = self.call(session, lock, LockMode::Exclusive);
        let caller = token.map_or(Identities::none(), shows);
        self.apply(Request { caller, ..request }).unwrap()
    }

    /// The next call of `acquire`, which waits.
    fn call(&mut self, session: SessionId, lock: &str, mode: LockMode) -> Request {
        self.calls += 1;
        let wish = LockWish {
            lock: LockName::parse(lock).unwrap(),
            mode,
            permits: 1,
            owner: "".into(),
            reentrant: false,
            note: "".into(),
            address: "".into(),
            lock_delay_ms: 0,
            names: Default::default(),
        };
        let acquire = LockCommand::Acquire {
            wish,
            guid: self.calls.into(),
            attempt: AttemptId(self.calls),
            wait: true,
        };
        by(session, acquire)
    }

    /// Begins an entry, and has it end a session that owns more than it removes. Nothing is left of its work.
    fn begin_end(&mut self, session: SessionId) {
        self.work = EntryWork::default();
        self.events.clear();
        assert_eq!(self.close(Rules::Current, session), Ok(Reply::SessionClosed));
        assert_eq!(self.removed(), MAX_REMOVED_AT_ONCE);
        assert!(self.store.is_ending(session));
    }

    /// Another replica, which begins with a snapshot of this one in the middle of the present entry.
    fn replica(&mut self) -> Self {
        let other = Self {
            store: restore(draw(&mut self.store, 100)),
            ..Self::default()
        };
        assert_eq!(other.store.digest(), self.store.digest());
        other
    }

    /// The sessions that hold a lock, and those that wait for it.
    fn of_lock(&self, lock: &str) -> (Vec<SessionId>, Vec<SessionId>) {
        let lock = LockName::parse(lock).unwrap();
        let view = self.store.lock(&lock).unwrap();
        let session = |contender: &znode_store::ContenderView| contender.session;
        (
            view.holders.iter().map(session).collect(),
            view.queue.iter().map(session).collect(),
        )
    }

    /// The sessions whose holds began, or whose waits ended with a grant, in the events.
    fn granted(&self) -> Vec<SessionId> {
        let granted = |event: &Event| match event {
            Event::HoldBegan(hold) => Some(hold.session),
            Event::Granted { session, .. } => Some(*session),
            _ => None,
        };
        self.events.iter().filter_map(granted).collect()
    }

    fn close(&mut self, rules: Rules, session: SessionId) -> Outcome {
        let command = Command::CloseSession { session };
        let request = Request {
            session: Some(session),
            ..Request::anonymous(command)
        };
        self.apply_by(rules, request)
    }

    /// Applies the leader's proposals while sessions are ending.
    fn go_on(&mut self) -> usize {
        let sessions = self.store.ending_sessions(64);
        let command = Command::ExpireSessions {
            sessions,
            term: 1,
            as_of: self.store.zxid(),
        };
        assert_eq!(
            self.apply(Request::internal(command)),
            Ok(Reply::SessionsExpired(0)),
            "it ended before"
        );
        self.removed()
    }

    /// Returns the number of contenders that ended in the events of the last entry.
    fn removed(&self) -> usize {
        let ended = |event: &&Event| matches!(event, Event::ContenderEnded { .. });
        self.events.iter().filter(ended).count()
    }

    fn secured() -> Self {
        let mut world = Self::default();
        let secure = AccessCommand::Secure {
            token: token(1),
            hash: TokenHash([0; 32]),
            description: "".into(),
            anonymous: None,
        };
        let operator = Identities::new([Identity::Super]);
        let request = Request {
            caller: operator,
            ..Request::anonymous(Command::Access(secure))
        };
        world.apply(request).unwrap();
        world
    }

    /// Has the first token make a role, and a token for it.
    fn token_with(&mut self, number: u8, grants: &[(&str, &[Right])]) -> TokenId {
        let role = RoleName::parse(&format!("role-{number}")).unwrap();
        let grants = grants.iter().map(|(prefix, rights)| PathGrant {
            prefix: ZPath::parse(prefix).unwrap(),
            rights: rights.iter().copied().collect(),
        });
        let set = AccessCommand::SetRole {
            role: role.clone(),
            grants: grants.collect(),
        };
        let create = AccessCommand::CreateToken(NewToken {
            id: token(number),
            hash: TokenHash([number; 32]),
            role,
            description: "".into(),
            expires_at_ms: None,
        });
        for command in [set, create] {
            self.apply(of(Some(token(1)), Command::Access(command))).unwrap();
        }
        token(number)
    }

    /// The pages of the list of locks: how many each shows.
    fn pages(&self, caller: TokenId, prefix: &str) -> Vec<usize> {
        let caller = shows(caller);
        let (mut sizes, mut after) = (Vec::new(), None::<LockName>);
        loop {
            let view = self.store.seen_by(&caller);
            let page = view
                .locks_page(prefix, after.as_ref().map(LockName::as_str), 1_000)
                .unwrap();
            sizes.push(page.locks.len());
            match page.next_after {
                Some(next) => after = Some(next),
                None => return sizes,
            }
        }
    }
}

fn token(number: u8) -> TokenId {
    TokenId([number; 16])
}

fn shows(token: TokenId) -> Identities {
    Identities::new([Identity::Token(token)])
}

fn of(token: Option<TokenId>, command: Command) -> Request {
    Request {
        caller: token.map_or(Identities::none(), shows),
        ..Request::anonymous(command)
    }
}

fn by(session: SessionId, command: LockCommand) -> Request {
    Request {
        session: Some(session),
        ..Request::anonymous(Command::Lock(command))
    }
}

fn release(session: SessionId, reply: &Reply) -> Request {
    let Reply::Granted(grant) = reply else {
        panic!("not granted: {reply}");
    };
    let (lock, holder) = (grant.lock.clone(), grant.holder.clone());
    by(session, LockCommand::Release { lock, holder })
}

fn lock_of(number: usize) -> String {
    format!("job/{number:05}")
}

/// More than two entries remove.
const MANY: usize = MAX_REMOVED_AT_ONCE * 2 + MAX_REMOVED_AT_ONCE / 2;

#[test]
fn a_large_session_ends_over_several_entries_in_the_order_of_arrival() {
    let mut world = World::with_sessions(&[FIRST, SECOND]);
    for number in 0..MANY {
        world.acquire(FIRST, &lock_of(number), None);
    }
    for number in [0, MANY - 1] {
        assert!(matches!(
            world.acquire(SECOND, &lock_of(number), None),
            Reply::Queued(_)
        ));
    }
    world.work = EntryWork::default();
    world.events.clear();
    assert_eq!(world.close(Rules::Current, FIRST), Ok(Reply::SessionClosed));
    assert_eq!(world.removed(), MAX_REMOVED_AT_ONCE);
    let ended = Event::SessionEnded {
        session: FIRST,
        expired: false,
    };
    assert!(world.events.contains(&ended), "it has ended at once");
    let store = &world.store;
    assert_eq!(store.session_fate(FIRST), SessionFate::Ended);
    assert_eq!((store.session(FIRST), store.sessions().len()), (None, 1));
    assert_eq!(store.lock_counts().holders, MANY - MAX_REMOVED_AT_ONCE + 1);
    // The first lock has its next holder already, and the last one still the former.
    let holder_of = |store: &Store, number| {
        let view = store.lock(&LockName::parse(&lock_of(number)).unwrap()).unwrap();
        view.holders[0].session
    };
    assert_eq!((holder_of(store, 0), holder_of(store, MANY - 1)), (SECOND, FIRST));
    // Nothing can be asked for it any more.
    let again = world.close(Rules::Current, FIRST);
    assert_eq!(again, Err(Refusal::SessionEnded(FIRST)));
    let reconnect = Command::Reconnect {
        session: FIRST,
        password: Password([0; 16]),
    };
    let reconnect = Request {
        session: Some(FIRST),
        ..Request::anonymous(reconnect)
    };
    assert_eq!(world.apply(reconnect), Err(Refusal::SessionEnded(FIRST)));

    // A leader may record a silence of a session whose end is on its way. Then the session has ended, and has none.
    let silence = Command::RecordSilence {
        sessions: vec![(FIRST, 10)],
        term: 1,
        as_of: world.store.zxid(),
    };
    let recorded = world.apply(Request::internal(silence));
    assert_eq!(recorded, Ok(Reply::SilenceRecorded(0)));

    // Another replica begins with a snapshot of the middle, and comes to the same.
    let mut other = restore(draw(&mut world.store, 100));
    assert_eq!(other.digest(), world.store.digest());
    assert!(other.is_ending(FIRST));
    assert_eq!(world.go_on(), MAX_REMOVED_AT_ONCE);
    assert!(
        world.events.iter().all(|event| *event != ended),
        "whose event comes once"
    );
    assert_eq!(world.go_on(), MANY - 2 * MAX_REMOVED_AT_ONCE);
    assert!(!world.store.is_ending(FIRST));
    assert_eq!(holder_of(&world.store, MANY - 1), SECOND);
    assert_eq!(world.store.lock_counts().holders, 2);
    while other.is_ending(FIRST) {
        let command = Command::ExpireSessions {
            sessions: vec![FIRST],
            term: 1,
            as_of: other.zxid(),
        };
        let entry = EntryContext { time_ms: 1, term: 1 };
        other
            .apply(&entry, Request::internal(command), &mut Vec::new())
            .outcome
            .unwrap();
    }
    assert_eq!(other.locks("", None, 9), world.store.locks("", None, 9));
    assert_eq!(other.session_fate(FIRST), SessionFate::Ended);
}

/// Begins with a lock that one session holds, and for which many shared waiters of another session wait; returns the hold.
fn many_readers(world: &mut World, count: usize) -> Reply {
    let held = world.acquire(FIRST, "many", None);
    for _ in 0..count {
        let wait = world.call(SECOND, "many", LockMode::Shared);
        assert!(matches!(world.apply(wait), Ok(Reply::Queued(_))));
    }
    held
}

#[test]
fn grants_to_many_waiters_take_several_entries_the_same_at_each_replica() {
    let mut world = World::with_sessions(&[FIRST, SECOND, THIRD]);
    let other = world.acquire(FIRST, "other", None);
    world.acquire(THIRD, "other", None);
    let held = many_readers(&mut world, 3 * MAX_GRANTED_AT_ONCE);
    world.apply(release(FIRST, &held)).unwrap();
    let at_once = MAX_GRANTED_AT_ONCE + 1;
    assert_eq!(world.of_lock("many").0.len(), at_once);
    // The budget of the entry is used up, and another command of it hands its own lock over all the same.
    world.apply_by(Rules::Current, release(FIRST, &other)).unwrap();
    assert_eq!(world.of_lock("other"), (vec![THIRD], vec![]));
    assert_eq!(world.of_lock("many").0.len(), at_once);

    // Another replica begins with a snapshot of the middle, and makes the same grants in the same entries.
    let mut replica = world.replica();
    let nothing = Request::internal(Command::Sweep(Vec::new()));
    for holders in [2 * at_once, 3 * MAX_GRANTED_AT_ONCE] {
        for world in [&mut world, &mut replica] {
            world.apply(nothing.clone()).unwrap();
            assert_eq!(world.of_lock("many").0.len(), holders);
        }
        assert_eq!(replica.events, world.events);
        assert_eq!(replica.store.digest(), world.store.digest());
    }
    assert_eq!(world.store.unfinished_grants().next(), None);
}

#[test]
fn drained_lock_makes_no_further_grants() {
    let mut world = World::with_sessions(&[FIRST, SECOND]);
    let held = many_readers(&mut world, 2 * MAX_GRANTED_AT_ONCE);
    world.apply(release(FIRST, &held)).unwrap();
    let drain = |draining| {
        Request::internal(Command::Lock(LockCommand::Configure {
            lock: LockName::parse("many").unwrap(),
            limit: None,
            draining: Some(draining),
        }))
    };
    world.apply(drain(true)).unwrap();
    assert_eq!(world.of_lock("many").0.len(), MAX_GRANTED_AT_ONCE + 1);
    assert_eq!(world.store.unfinished_grants().next(), None);
    let replica = world.replica();
    assert_eq!(replica.store.unfinished_grants().next(), None);
    world.apply(drain(false)).unwrap();
    assert_eq!(world.of_lock("many").0.len(), 2 * MAX_GRANTED_AT_ONCE);
}

#[test]
fn waiters_without_right_leave_within_the_budget_of_the_entry() {
    let mut world = World::secured();
    let right: &[Right] = &[Right::Lock];
    let [holder, waiter] = [2, 3].map(|number| world.token_with(number, &[("/locks/many", right)]));
    world.open(FIRST, Some(holder));
    world.open(SECOND, Some(waiter));
    let rule = AccessCommand::EndWaitsWithRights;
    world.apply(Request::internal(Command::Access(rule))).unwrap();
    let held = world.acquire(FIRST, "many", Some(holder));
    for _ in 0..2 * MAX_GRANTED_AT_ONCE {
        world.acquire(SECOND, "many", Some(waiter));
    }
    world
        .apply(of(
            Some(token(1)),
            Command::Access(AccessCommand::RevokeToken(waiter)),
        ))
        .unwrap();
    let caller = shows(holder);
    world
        .apply(Request {
            caller,
            ..release(FIRST, &held)
        })
        .unwrap();
    assert_eq!(world.of_lock("many").1.len(), MAX_GRANTED_AT_ONCE - 1);
    world
        .apply(Request::internal(Command::Sweep(Vec::new())))
        .unwrap();
    assert_eq!(world.of_lock("many"), (vec![], vec![]));
}

#[test]
fn a_place_in_a_queue_is_not_granted_after_its_session_has_ended() {
    let mut world = World::with_sessions(&[FIRST, SECOND, THIRD]);
    for number in 0..MANY {
        world.acquire(FIRST, &lock_of(number), None);
    }
    world.acquire(SECOND, "wanted", None);
    world.acquire(FIRST, "wanted", None);
    world.acquire(THIRD, "wanted", None);
    world.work = EntryWork::default();
    assert_eq!(world.close(Rules::Current, FIRST), Ok(Reply::SessionClosed));
    let close = Command::CloseSession { session: SECOND };
    world.apply(Request::anonymous(close)).unwrap();
    let wanted = world.store.lock(&LockName::parse("wanted").unwrap()).unwrap();
    assert_eq!(
        (wanted.holders[0].session, wanted.queue.len()),
        (THIRD, 0),
        "the place before it is gone"
    );
    let began = |event: &Event| match event {
        Event::HoldBegan(hold) => Some(hold.session),
        _ => None,
    };
    let began: Vec<SessionId> = world.events.iter().filter_map(began).collect();
    assert_eq!(began, [THIRD]);
}

/// `FIRST` has begun to end and waits for the lock "wanted", `THIRD` waits behind it, and the holder has released the lock in the same entry.
fn released_before_an_ended_waiter() -> World {
    let mut world = World::with_sessions(&[FIRST, SECOND, THIRD]);
    for number in 0..MANY {
        world.acquire(FIRST, &lock_of(number), None);
    }
    let held = world.acquire(SECOND, "wanted", None);
    world.acquire(FIRST, "wanted", None);
    world.acquire(THIRD, "wanted", None);
    world.begin_end(FIRST);
    let released = world.apply_by(Rules::Current, release(SECOND, &held));
    assert_eq!(released, Ok(Reply::Released { holds: 0 }));
    world
}

#[test]
fn lock_stays_free_while_the_entry_cannot_remove_an_ended_waiter() {
    let mut world = released_before_an_ended_waiter();
    assert_eq!(world.granted(), []);
    assert_eq!(world.of_lock("wanted"), (vec![], vec![FIRST, THIRD]));

    // Nobody overtakes the queue, and the newcomer does not promote it either.
    let late = world.call(SECOND, "wanted", LockMode::Exclusive);
    let Ok(Reply::Queued(place)) = world.apply_by(Rules::Current, late) else {
        panic!("it overtook the queue");
    };
    assert_eq!(place.ahead, 2);
    assert_eq!(world.granted(), []);
    assert_eq!(world.of_lock("wanted"), (vec![], vec![FIRST, THIRD, SECOND]));

    // A replica that begins here with a snapshot goes on in the same way.
    let mut other = world.replica();
    for world in [&mut world, &mut other] {
        while world.store.is_ending(FIRST) {
            world.go_on();
            assert!(!world.granted().contains(&FIRST));
        }
        assert_eq!(world.granted(), [THIRD, THIRD], "the hold, and the notice");
        assert_eq!(world.of_lock("wanted"), (vec![THIRD], vec![SECOND]));
    }
    assert_eq!(world.store.digest(), other.store.digest());
}

#[test]
fn next_command_for_a_lock_removes_its_ended_waiters() {
    let mut world = released_before_an_ended_waiter();
    let mut other = world.replica();
    let late = world.call(SECOND, "wanted", LockMode::Exclusive);
    for world in [&mut world, &mut other] {
        assert!(matches!(world.apply(late.clone()), Ok(Reply::Queued(_))));
        assert_eq!(world.granted(), [THIRD, THIRD]);
        assert_eq!(world.removed(), 1, "only the waiter was in the way");
        assert_eq!(world.of_lock("wanted"), (vec![THIRD], vec![SECOND]));
    }
    assert_eq!(world.store.digest(), other.store.digest());
}

#[test]
fn ended_session_is_granted_no_upgrade() {
    let mut world = World::with_sessions(&[FIRST, SECOND]);
    for number in 0..MANY {
        world.acquire(FIRST, &lock_of(number), None);
    }
    let [upgradeable, shared] =
        [(FIRST, LockMode::Upgradeable), (SECOND, LockMode::Shared)].map(|(session, mode)| {
            let call = world.call(session, "wanted", mode);
            world.apply(call).unwrap()
        });
    let Reply::Granted(grant) = &upgradeable else {
        panic!("not granted: {upgradeable}");
    };
    let upgrade = LockCommand::Upgrade {
        lock: grant.lock.clone(),
        holder: grant.holder.clone(),
        attempt: AttemptId(9_999),
        wait: true,
    };
    assert!(matches!(world.apply(by(FIRST, upgrade)), Ok(Reply::Queued(_))));
    world.begin_end(FIRST);
    (world.apply_by(Rules::Current, release(SECOND, &shared))).unwrap();
    let mut other = world.replica();
    for world in [&mut world, &mut other] {
        assert_eq!(world.granted(), []);
        while world.store.is_ending(FIRST) {
            world.go_on();
            assert_eq!(world.granted(), []);
        }
        assert_eq!(world.store.lock_count(), 0);
    }
    assert_eq!(world.store.digest(), other.store.digest());
}

#[test]
fn wait_for_an_ended_session_closes_no_cycle() {
    let mut world = World::with_sessions(&[FIRST, SECOND]);
    for number in 0..MANY {
        world.acquire(FIRST, &lock_of(number), None);
    }
    let owned = |mut request: Request| {
        if let Command::Lock(LockCommand::Acquire { wish, .. }) = &mut request.command {
            wish.owner = "task".into();
        }
        request
    };
    let [first, second, waits, closes] = [(FIRST, "one"), (SECOND, "two"), (FIRST, "two"), (SECOND, "one")]
        .map(|(session, lock)| owned(world.call(session, lock, LockMode::Exclusive)));
    for request in [first, second, waits] {
        world.apply(request).unwrap();
    }
    let refused = world.apply(closes.clone());
    assert!(
        matches!(refused, Err(Refusal::WouldDeadlock { .. })),
        "{refused:?}"
    );
    world.begin_end(FIRST);
    let mut other = world.replica();
    for world in [&mut world, &mut other] {
        let queued = world.apply_by(Rules::Current, closes.clone());
        assert!(matches!(queued, Ok(Reply::Queued(_))), "{queued:?}");
    }
    assert_eq!(world.store.digest(), other.store.digest());
}

#[test]
fn remaining_ephemerals_of_an_expired_session_are_removed() {
    let mut world = World::with_sessions(&[FIRST]);
    for number in 0..=MAX_REMOVED_AT_ONCE {
        world.acquire(FIRST, &lock_of(number), None);
    }
    let expire = Command::ExpireSessions {
        sessions: vec![FIRST],
        term: 1,
        as_of: world.store.zxid(),
    };
    assert_eq!(
        world.apply(Request::internal(expire)),
        Ok(Reply::SessionsExpired(1))
    );
    assert_eq!(world.go_on(), 1);
    let how = world.events.iter().find_map(|event| match event {
        Event::ContenderEnded { how, .. } => Some(how.clone()),
        _ => None,
    });
    assert_eq!(how, Some(ContenderEnd::SessionExpired));
}

#[test]
fn the_commands_of_one_entry_share_its_work() {
    let mut world = World::with_sessions(&[FIRST, SECOND]);
    for number in 0..MAX_REMOVED_AT_ONCE - 1 {
        world.acquire(FIRST, &lock_of(number), None);
    }
    for number in MAX_REMOVED_AT_ONCE..MAX_REMOVED_AT_ONCE + 2 {
        world.acquire(SECOND, &lock_of(number), None);
    }
    world.work = EntryWork::default();
    world.events.clear();
    for session in [FIRST, SECOND] {
        assert_eq!(world.close(Rules::Current, session), Ok(Reply::SessionClosed));
        assert_eq!(world.store.session_fate(session), SessionFate::Ended);
    }
    assert_eq!(world.removed(), MAX_REMOVED_AT_ONCE);
    assert_eq!(world.store.ending_sessions(9), [SECOND]);
    assert_eq!(world.go_on(), 1);
}

#[test]
fn an_entry_of_a_former_release_ends_a_session_in_one_command() {
    let mut world = World::with_sessions(&[FIRST]);
    for number in 0..MANY {
        world.acquire(FIRST, &lock_of(number), None);
    }
    world.work = EntryWork::default();
    world.events.clear();
    assert_eq!(world.close(Rules::Former, FIRST), Ok(Reply::SessionClosed));
    assert_eq!((world.removed(), world.store.lock_count()), (MANY, 0));
}

fn children(parent: &str, count: usize) -> Vec<Op> {
    let create = |number: usize| Op::Create {
        path: CreatePath::parse(&format!("{parent}/{number}"), false).unwrap(),
        data: "".into(),
        acl: Acl::open(),
        mode: CreateMode::Persistent,
        parents: true,
    };
    (0..count).map(create).collect()
}

#[test]
fn a_transaction_has_a_maximum_number_of_operations() {
    let mut world = World::default();
    let limit = Err(Refusal::LimitReached {
        what: Limited::Operations,
        limit: MAX_OPERATIONS as u32,
    });
    let too_many = Request::anonymous(Command::Multi(children("/a", MAX_OPERATIONS + 1)));
    assert_eq!(world.apply(too_many.clone()), limit);
    assert!(world.apply_by(Rules::Former, too_many).is_ok());
    let most = Request::anonymous(Command::Multi(children("/b", MAX_OPERATIONS)));
    assert!(world.apply(most).is_ok());
}

#[test]
fn a_recursive_delete_removes_a_maximum_number_of_znodes_below_the_named_one() {
    let mut world = World::default();
    let path = |text: &str| ZPath::parse(text).unwrap();
    let delete = |of: &str| Op::DeleteRecursive { path: path(of) };
    for (parent, count) in [("/a/b", MAX_DESCENDANTS - 1), ("/c", MAX_DESCENDANTS), ("/d", 1)] {
        let create = Command::Multi(children(parent, count));
        world.apply(Request::anonymous(create)).unwrap();
    }
    let limit = |of: &str| Refusal::LimitReached {
        what: Limited::Descendants(path(of)),
        limit: MAX_DESCENDANTS as u32,
    };
    // What operations of a transaction remove counts together.
    let both = Request::anonymous(Command::Multi(vec![delete("/c"), delete("/d")]));
    let refused = world.apply(both).unwrap_err();
    let of_second = Refusal::Multi {
        index: 1,
        refusal: limit("/d").into(),
    };
    assert_eq!(refused, of_second);
    for whole in ["/a", "/c"] {
        let request = Request::anonymous(Command::Write(delete(whole)));
        assert_eq!(world.apply(request), Ok(Reply::Deleted), "{whole}");
    }
    let create = Command::Multi(children("/a/b", MAX_DESCENDANTS));
    world.apply(Request::anonymous(create)).unwrap();
    let request = Request::anonymous(Command::Write(delete("/a")));
    assert_eq!(world.apply(request.clone()), Err(limit("/a")));
    assert_eq!(world.apply_by(Rules::Former, request), Ok(Reply::Deleted));
}

/// A state where the first token's session holds this many locks below `job`, and one each below the others.
fn with_many_locks(many: usize) -> World {
    let mut world = World::secured();
    world.open(FIRST, Some(token(1)));
    for number in 0..many {
        world.acquire(FIRST, &lock_of(number), Some(token(1)));
    }
    for lock in ["jo", "job", "job-1", "jobs/1", "zebra/stripe"] {
        world.acquire(FIRST, lock, Some(token(1)));
    }
    world
}

#[test]
fn the_list_of_locks_looks_only_where_its_caller_may_read() {
    let mut world = with_many_locks(MAX_LOOKED_AT + 10);
    let none = world.token_with(2, &[]);
    assert_eq!(world.pages(none, ""), [0], "one page, of nothing");
    // Rights without the right to read, and at another place of the tree.
    let elsewhere = world.token_with(3, &[("/locks/job", &[Right::Lock]), ("/data", &[Right::Read])]);
    assert_eq!(world.pages(elsewhere, ""), [0]);
    let stripes = world.token_with(
        4,
        &[("/locks/zebra", &[Right::Read]), ("/locks/job-1", &[Right::Read])],
    );
    assert_eq!(world.pages(stripes, ""), [2]);
    assert_eq!(world.pages(stripes, "z"), [1]);
    assert_eq!(world.pages(stripes, "zebra/str"), [1]);
    assert_eq!(world.pages(stripes, "job"), [1]);
    // A grant covers whole components, and one within another counts once.
    let jobs = world.token_with(
        5,
        &[
            ("/locks/job", &[Right::Read]),
            ("/locks/job/00001", &[Right::Read]),
        ],
    );
    assert_eq!(world.pages(jobs, ""), [1_000, 1_000, 11]);
    let shown = |caller: TokenId, prefix| {
        let caller = shows(caller);
        let page = world.store.seen_by(&caller).locks_page(prefix, None, 3).unwrap();
        let names: Vec<String> = page.locks.iter().map(|lock| lock.lock.to_string()).collect();
        names
    };
    assert_eq!(shown(jobs, ""), ["job", "job/00000", "job/00001"]);
    assert_eq!(shown(token(1), ""), ["jo", "job", "job-1"]);
}

#[test]
fn page_ends_at_the_bound_of_visited_items() {
    let mut world = with_many_locks(MAX_LOOKED_AT + 10);
    // Lists of their own keep the first locks from everybody else.
    for number in 0..MAX_LOOKED_AT + 5 {
        let lock = LockName::parse(&lock_of(number)).unwrap();
        let set = Op::SetAcl {
            path: lock.znode().clone(),
            acl: Acl::new(vec![AclEntry {
                perms: Perms::ALL,
                scheme: "ip".into(),
                id: "10.0.0.1".into(),
            }]),
            aversion: -1,
        };
        let request = of(Some(token(1)), Command::Write(set));
        world.apply(request).unwrap();
    }
    let reader = world.token_with(2, &[("/locks/job", &[Right::Read])]);
    // `job` itself, then nothing until the end of the first page's looks.
    assert_eq!(world.pages(reader, ""), [1, 5]);
    assert_eq!(world.pages(reader, "job/"), [0, 5]);
}

#[test]
fn the_graph_of_waits_looks_only_where_its_caller_may_read() {
    let mut world = with_many_locks(MAX_LOOKED_AT + 10);
    world.open(SECOND, Some(token(1)));
    world.acquire(SECOND, &lock_of(MAX_LOOKED_AT + 9), Some(token(1)));
    world.acquire(SECOND, "zebra/stripe", Some(token(1)));
    let parts = |world: &World, caller: TokenId| {
        let (caller, mut parts, mut from) = (shows(caller), Vec::new(), None);
        loop {
            let view = world.store.seen_by(&caller);
            let (waits, next) = view.wait_graph_part("", from.as_ref()).unwrap();
            parts.push(waits.len());
            from = next;
            if from.is_none() {
                return parts;
            }
        }
    };
    let none = world.token_with(2, &[]);
    assert_eq!(parts(&world, none), [0]);
    let stripes = world.token_with(3, &[("/locks/zebra", &[Right::Read])]);
    assert_eq!(parts(&world, stripes), [1]);
    assert_eq!(parts(&world, token(1)), [0, 2]);
    assert_eq!(
        world
            .store
            .seen_by(&shows(token(1)))
            .wait_graph("")
            .unwrap()
            .0
            .len(),
        2
    );
}

#[test]
fn graph_of_a_long_queue_is_paged_without_duplicates() {
    let mut world = World::with_sessions(&[FIRST]);
    for _ in 0..1_251 {
        world.acquire(FIRST, "job", None);
    }
    let caller = Identities::none();
    let view = world.store.seen_by(&caller);
    let (mut holders, mut parts, mut from) = (Vec::new(), 0, None);
    loop {
        let (waits, next) = view.wait_graph_part("", from.as_ref()).unwrap();
        holders.extend(waits.into_iter().map(|wait| wait.waiter.holder));
        parts += 1;
        from = next;
        if from.is_none() {
            break;
        }
    }
    assert_eq!((holders.len(), parts), (1_250, 3));
    holders.sort_unstable();
    holders.dedup();
    assert_eq!(holders.len(), 1_250);
}

#[test]
fn a_page_of_sessions_shows_own_sessions_and_visits_no_more_than_the_bound() {
    let mut world = World::secured();
    let worker = world.token_with(2, &[("/locks/job", &[Right::Lock])]);
    for number in 1..=MAX_LOOKED_AT as u64 + 10 {
        world.open(SessionId(number), Some(token(1)));
    }
    world.open(SessionId(5_000), Some(worker));
    world.open(SessionId(5_001), Some(worker));
    let page = |caller: TokenId, after, count| {
        let caller = shows(caller);
        let view = world.store.seen_by(&caller);
        let page = view.sessions_page(after, count, |_| true).unwrap();
        let ids: Vec<u64> = page.sessions.iter().map(|view| view.session.0).collect();
        (ids, page.next_after.map(|session| session.0))
    };
    let bound = MAX_LOOKED_AT as u64;
    assert_eq!(page(worker, None, 9), (vec![], Some(bound)));
    assert_eq!(
        page(worker, Some(SessionId(bound)), 9),
        (vec![5_000, 5_001], None)
    );
    assert_eq!(
        page(worker, Some(SessionId(bound)), 1),
        (vec![5_000], Some(5_000))
    );
    assert_eq!(page(worker, Some(SessionId(5_000)), 9), (vec![5_001], None));
    assert_eq!(page(token(1), Some(SessionId(7)), 2), (vec![8, 9], Some(9)));
    // What nobody asks for is looked at, too.
    let caller = shows(token(1));
    let view = world.store.seen_by(&caller);
    let few = view
        .sessions_page(None, 9, |view| view.session.0 > MAX_LOOKED_AT as u64)
        .unwrap();
    assert_eq!(
        (few.sessions.len(), few.next_after),
        (0, Some(SessionId(MAX_LOOKED_AT as u64)))
    );
    // A session that ends is in no list.
    let command = Command::CloseSession {
        session: SessionId(5_000),
    };
    world.apply(of(Some(worker), command)).unwrap();
    let caller = shows(worker);
    let page = world
        .store
        .seen_by(&caller)
        .sessions_page(Some(SessionId(bound)), 9, |_| true)
        .unwrap();
    assert_eq!(page.sessions.len(), 1);
}

#[test]
fn ephemeral_znodes_are_listed_in_pages_in_the_order_of_creation() {
    let mut world = World::with_sessions(&[FIRST]);
    let create = |path: &str| Op::Create {
        path: CreatePath::parse(path, false).unwrap(),
        data: "".into(),
        acl: Acl::open(),
        mode: CreateMode::Ephemeral,
        parents: false,
    };
    let multi = |paths: &[&str]| Request {
        session: Some(FIRST),
        ..Request::anonymous(Command::Multi(paths.iter().map(|path| create(path)).collect()))
    };
    world.apply(multi(&["/z"])).unwrap();
    // Those of one position are in the order of their paths.
    world.apply(multi(&["/d", "/b", "/c"])).unwrap();
    world.apply(multi(&["/a"])).unwrap();
    let pages = |prefix: &str, count| {
        let caller = Identities::none();
        let view = world.store.seen_by(&caller);
        let (mut pages, mut after) = (Vec::new(), None);
        loop {
            let page = view
                .ephemerals_page(FIRST, prefix, after.as_ref(), count)
                .unwrap();
            let paths: Vec<_> = page.paths.iter().map(ToString::to_string).collect();
            pages.push(paths.join(" "));
            after = page.next_after;
            if after.is_none() {
                return pages;
            }
        }
    };
    assert_eq!(pages("", 9), ["/z /b /c /d /a"]);
    assert_eq!(pages("", 2), ["/z /b", "/c /d", "/a"]);
    assert_eq!(pages("/c", 1), ["/c", ""]);
}

/// Sets data of a znode under a request id, on behalf of a token.
fn set(world: &mut World, rules: Rules, token: TokenId, id: &str) -> Outcome {
    let set = Op::Set {
        path: ZPath::parse("/a").unwrap(),
        data: "x".into(),
        version: -1,
    };
    let request = Request {
        request_id: Some(RequestId::parse(id).unwrap()),
        ..of(Some(token), Command::Write(set))
    };
    world.apply_by(rules, request)
}

fn version_of(outcome: &Outcome) -> i32 {
    match outcome {
        Ok(Reply::Set(stat)) => stat.version,
        other => panic!("it was not set: {other:?}"),
    }
}

#[test]
fn flood_of_requests_evicts_no_other_principals_requests() {
    for (rules, forgotten) in [(Rules::Current, false), (Rules::Former, true)] {
        let mut world = World::secured();
        let grants: &[(&str, &[Right])] = &[("/a", &[Right::Write])];
        let [honest, flooding] = [2, 3].map(|number| world.token_with(number, grants));
        let create = Op::Create {
            path: CreatePath::parse("/a", false).unwrap(),
            data: "".into(),
            acl: Acl::open(),
            mode: CreateMode::Persistent,
            parents: false,
        };
        world.apply(of(Some(token(1)), Command::Write(create))).unwrap();
        let first = set(&mut world, rules, honest, "mine");
        for number in 0..MAX_SESSIONLESS_REQUESTS + 200 {
            set(&mut world, rules, flooding, &number.to_string()).unwrap();
        }
        let (_, remembered) = world.store.remembered_requests();
        assert_eq!(remembered, MAX_SESSIONLESS_REQUESTS);
        // A replica that begins with a snapshot goes on in the same way.
        let mut other = World {
            store: restore(draw(&mut world.store, 1_000)),
            ..World::default()
        };
        for world in [&mut world, &mut other] {
            let again = set(world, rules, honest, "mine");
            assert_eq!(version_of(&again) != version_of(&first), forgotten, "{rules:?}");
            // Its own oldest ones are forgotten.
            let of_flood = set(world, rules, flooding, "0");
            assert!(version_of(&of_flood) > MAX_SESSIONLESS_REQUESTS as i32);
        }
        assert_eq!(world.store.digest(), other.store.digest());
    }
}
