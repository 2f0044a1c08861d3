//! Random steps of the lock protocol among random writes of ZooKeeper clients, sessions that end and transactions that
//! fail, on a store and on a replica that is restored from a snapshot before each step. What must hold is said by the
//! functions whose names begin with `check`; a failure prints the shortest list of steps that shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use znode_store::{
    AttemptId, Command, ContenderView, CreateMode, CreatePath, Data, EntryContext, Event, Grant, Hold,
    HolderId, Identities, LockCommand, LockMode, LockName, LockView, LockWish, Op, Outcome, Password, Reply,
    Request, RequestId, SessionFate, SessionId, Standing, Store, WithdrawCause, ZPath,
};

use crate::lock_script::check_rule;
use crate::replicas::Replicas;

const LOCKS: [&str; 3] = ["a", "a/b", "c"];
const OWNERS: [&str; 2] = ["", "owner"];
const SESSIONS: u8 = 4;

#[derive(Debug, Clone)]
struct Step {
    session: u8,
    request: Option<u8>,
    lock: u8,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    Acquire {
        mode: u8,
        permits: u8,
        owner: u8,
        reentrant: bool,
        wait: bool,
    },
    Release(u8),
    Withdraw {
        contender: u8,
        attempt: u8,
        cause: WithdrawCause,
    },
    Break(u8),
    /// What ZooKeeper clients do.
    Create(&'static str),
    Delete(u8),
    DeleteLock,
    /// A create and a delete, and perhaps something that fails.
    Multi {
        name: &'static str,
        contender: u8,
        fails: bool,
    },
    OpenSession,
    CloseSession,
    ExpireSessions(u8),
}

fn any_step() -> impl Strategy<Value = Step> {
    let names = prop::sample::select(vec!["lock-", "x__READ__", "x__rlock__", "n_", "_c_1-lease-"]);
    let what = prop_oneof![
        12 => (0u8..8, 1u8..4, prop_oneof![4 => Just(0u8), 1 => Just(1)], prop::bool::weighted(0.8), prop::bool::weighted(0.8)).prop_map(
            |(mode, permits, owner, reentrant, wait)| What::Acquire { mode, permits, owner, reentrant, wait }
        ),
        8 => any::<u8>().prop_map(What::Release),
        6 => (any::<u8>(), any::<u8>(), any::<bool>()).prop_map(|(contender, attempt, timed_out)| {
            let cause = if timed_out { WithdrawCause::TimedOut } else { WithdrawCause::Abandoned };
            What::Withdraw { contender, attempt, cause }
        }),
        1 => any::<u8>().prop_map(What::Break),
        2 => names.clone().prop_map(What::Create),
        1 => any::<u8>().prop_map(What::Delete),
        1 => Just(What::DeleteLock),
        2 => (names, any::<u8>(), any::<bool>())
            .prop_map(|(name, contender, fails)| What::Multi { name, contender, fails }),
        3 => Just(What::OpenSession),
        1 => Just(What::CloseSession),
        1 => any::<u8>().prop_map(What::ExpireSessions),
    ];
    (
        // One session and one lock more than the others, so that calls join each other.
        prop_oneof![Just(0), 0..SESSIONS],
        prop::option::weighted(0.3, 0u8..6),
        prop_oneof![Just(0), 0..LOCKS.len() as u8],
        what,
    )
        .prop_map(|(session, request, lock, what)| Step {
            session,
            // What other commands' repetitions do is no matter of locks.
            request: request.filter(|_| matches!(what, What::Acquire { .. })),
            lock,
            what,
        })
}

/// The calls that a contender stands for.
#[derive(Debug, Default)]
struct Calls {
    known: BTreeSet<u64>,
    released: usize,
}

struct World {
    replicas: Replicas,
    /// The number of the next call of `acquire`.
    next_call: u64,
    calls: BTreeMap<HolderId, Calls>,
    /// Which call a request id of a session stands for by now.
    requests: BTreeMap<(SessionId, u8), u64>,
    /// The largest token that was ever granted, by lock: of all grants, and of exclusive ones.
    tokens: BTreeMap<LockName, (u64, u64)>,
}

type Views = BTreeMap<LockName, LockView>;

impl World {
    fn new() -> Self {
        Self {
            replicas: Replicas::new(),
            next_call: 1,
            calls: BTreeMap::new(),
            requests: BTreeMap::new(),
            tokens: BTreeMap::new(),
        }
    }

    fn take(&mut self, step: &Step) {
        let before = views(&self.replicas.store);
        let lock = LockName::parse(LOCKS[usize::from(step.lock)]).expect("the name is legal");
        let session = match (&step.what, before.get(&lock).map(all).as_deref()) {
            // Three of four ask for what is their own.
            (What::Release(n) | What::Withdraw { contender: n, .. }, Some(contenders))
                if n % 4 != 0 && !contenders.is_empty() =>
            {
                contenders[usize::from(*n) % contenders.len()].session
            }
            _ => SessionId(u64::from(step.session) + 1),
        };
        let command = self.command(step, session, &lock, before.get(&lock));
        let request_id = step
            .request
            .map(|request| RequestId::parse(&format!("r{request}")).expect("the id is short"));
        let request = Request {
            session: Some(session),
            request_id,
            caller: Identities::none(),
            command: command.clone(),
        };
        // Requests without a session are refused if that has ended; these are not made on a session's behalf.
        let request = match &request.command {
            Command::OpenSession { .. } | Command::CloseSession { .. } | Command::ExpireSessions { .. } => {
                Request {
                    session: None,
                    request_id: None,
                    caller: Identities::none(),
                    ..request
                }
            }
            _ => request,
        };
        let (applied, events) = self
            .replicas
            .apply(&EntryContext { time_ms: 0, term: 1 }, request);
        let store = &self.replicas.store;
        let after = views(store);

        check_rule(store);
        check_events(&before, &after, &events, store);
        check_nothing_taken_back(&before, &after);
        check_order(&before, &after);
        check_sessions(&after, store);
        check_reply(&command, &applied.outcome, store, step.request.is_some());
        self.check_tokens(&before, &after);
        self.count_calls(step, session, &command, &applied.outcome, &before, &after);
        self.check_holds(&after);
    }

    fn command(
        &mut self,
        step: &Step,
        session: SessionId,
        lock: &LockName,
        view: Option<&LockView>,
    ) -> Command {
        let contenders: Vec<&ContenderView> = view
            .into_iter()
            .flat_map(|view| view.holders.iter().chain(&view.queue))
            .collect();
        let pick = |n: u8| match contenders.len() {
            0 => "_c_00000000000000000000000000000000-lock-0000000000".to_owned(),
            len => contenders[usize::from(n) % len].holder.clone(),
        };
        let znode_of = |holder: &str| {
            lock.znode()
                .join(holder)
                .expect("a name of a znode is a component")
        };
        let lock = lock.clone();
        match &step.what {
            &What::Acquire {
                mode,
                permits,
                owner,
                reentrant,
                wait,
            } => {
                let call = self.next_call;
                self.next_call += 1;
                let (mode, permits) = match mode {
                    0..3 => (LockMode::Exclusive, 1),
                    3..6 => (LockMode::Shared, 1),
                    6 => (LockMode::Semaphore { limit: 3 }, permits.into()),
                    _ => (LockMode::Semaphore { limit: 4 }, permits.into()),
                };
                let wish = LockWish {
                    lock,
                    mode,
                    permits,
                    owner: OWNERS[usize::from(owner)].into(),
                    reentrant,
                    note: "".into(),
                    address: "".into(),
                };
                let (guid, attempt) = (call.into(), AttemptId(call));
                Command::Lock(LockCommand::Acquire {
                    wish,
                    guid,
                    attempt,
                    wait,
                })
            }
            What::Release(n) => Command::Lock(LockCommand::Release {
                lock,
                holder: pick(*n),
            }),
            What::Withdraw {
                contender,
                attempt,
                cause,
            } => {
                let holder = pick(*contender);
                // Mostly one of the contender's own calls.
                let known = self.calls.get(&holder).map(|calls| &calls.known);
                let attempt = match known.filter(|known| !known.is_empty() && *attempt < 220) {
                    Some(known) => *known
                        .iter()
                        .nth(usize::from(*attempt) % known.len())
                        .expect("it was taken modulo their number"),
                    None => u64::from(*attempt),
                };
                let (attempt, cause) = (AttemptId(attempt), *cause);
                Command::Lock(LockCommand::Withdraw {
                    lock,
                    holder,
                    attempt,
                    cause,
                })
            }
            What::Break(n) => Command::Lock(LockCommand::Break {
                lock,
                holder: pick(*n),
                reason: "reason".into(),
            }),
            What::Create(name) => Command::Write(create(&lock, name)),
            What::Delete(n) => Command::Write(Op::Delete {
                path: znode_of(&pick(*n)),
                version: -1,
            }),
            What::DeleteLock => Command::Write(Op::DeleteRecursive {
                path: lock.znode().clone(),
            }),
            What::Multi {
                name,
                contender,
                fails,
            } => {
                let mut ops = vec![
                    create(&lock, name),
                    Op::Delete {
                        path: znode_of(&pick(*contender)),
                        version: -1,
                    },
                ];
                if *fails {
                    ops.push(Op::Check {
                        path: ZPath::parse("/nothing").expect("the path is legal"),
                        version: -1,
                    });
                }
                Command::Multi(ops)
            }
            What::OpenSession => Command::OpenSession {
                session,
                password: Password([0; 16]),
                timeout_ms: 1,
                name: "".into(),
                address: "".into(),
            },
            What::CloseSession => Command::CloseSession { session },
            What::ExpireSessions(others) => {
                let sessions = (0..SESSIONS)
                    .filter(|n| others & (1 << n) != 0)
                    .map(|n| SessionId(u64::from(n) + 1));
                Command::ExpireSessions {
                    sessions: sessions.collect(),
                    term: 1,
                }
            }
        }
    }

    /// Follows what calls stand where, in the plainest way.
    fn count_calls(
        &mut self,
        step: &Step,
        session: SessionId,
        command: &Command,
        outcome: &Outcome,
        before: &Views,
        after: &Views,
    ) {
        let holds_before = |holder: &str| {
            before
                .values()
                .any(|view| view.holders.iter().any(|contender| contender.holder == holder))
        };
        match (command, outcome) {
            (Command::Lock(LockCommand::Acquire { attempt, .. }), Ok(reply)) => {
                let holder = match reply {
                    Reply::Granted(grant) => &grant.holder,
                    Reply::Queued(place) => &place.holder,
                    other => panic!("an acquire was answered {other}"),
                };
                let calls = self.calls.entry(holder.clone()).or_default();
                let repeated = step
                    .request
                    .and_then(|request| self.requests.get(&(session, request)));
                match repeated {
                    // Made again: the new call takes the old one's place, if that is still there.
                    Some(first) if calls.known.remove(first) => {}
                    // Made again when all was over.
                    Some(_) if !alive(after, holder) => return,
                    _ => {}
                }
                calls.known.insert(attempt.0);
                if let Some(request) = step.request {
                    self.requests.insert((session, request), attempt.0);
                }
            }
            (Command::Lock(LockCommand::Release { holder, .. }), Ok(_)) => {
                // Other clients' contenders stand for no calls.
                if let Some(calls) = self.calls.get_mut(holder) {
                    calls.released += 1;
                }
            }
            (
                Command::Lock(LockCommand::Withdraw {
                    holder,
                    attempt,
                    cause,
                    ..
                }),
                Ok(_),
            ) => {
                let owned = before.values().any(|view| {
                    let mut all = view.holders.iter().chain(&view.queue);
                    all.any(|contender| contender.holder == *holder && contender.session == session)
                });
                let stands = *cause == WithdrawCause::TimedOut && holds_before(holder);
                if let Some(calls) = self.calls.get_mut(holder).filter(|_| owned && !stands) {
                    calls.known.remove(&attempt.0);
                }
            }
            _ => {}
        }
    }

    /// Every contender of the lock protocol has as many holds as calls that were neither withdrawn nor released.
    fn check_holds(&mut self, after: &Views) {
        self.calls.retain(|holder, _| alive(after, holder));
        for view in after.values() {
            for contender in view.holders.iter().chain(&view.queue) {
                if let Some(calls) = self.calls.get(&contender.holder) {
                    assert_eq!(
                        contender.holds as usize,
                        calls.known.len() - calls.released,
                        "{contender:?}"
                    );
                }
            }
        }
    }

    /// Of two conflicting grants of one lock the later one has the larger token.
    fn check_tokens(&mut self, before: &Views, after: &Views) {
        for (lock, view) in after {
            let held = before.get(lock).map(|view| &view.holders);
            for holder in &view.holders {
                if held
                    .into_iter()
                    .flatten()
                    .any(|other| other.holder == holder.holder)
                {
                    continue;
                }
                let (any, exclusive) = self.tokens.entry(lock.clone()).or_default();
                let token = holder.fencing_token.0;
                match holder.mode {
                    LockMode::Exclusive => {
                        assert!(token > *any, "{lock}: {token} after {any}");
                        *exclusive = token;
                    }
                    LockMode::Shared | LockMode::Semaphore { .. } => assert!(token > *exclusive),
                }
                *any = token.max(*any);
            }
        }
    }
}

fn create(lock: &LockName, name: &str) -> Op {
    Op::Create {
        path: CreatePath {
            parent: lock.znode().clone(),
            name: name.into(),
        },
        data: Data::from("theirs"),
        acl: znode_store::Acl::open(),
        mode: CreateMode::EphemeralSequential,
        parents: true,
    }
}

fn views(store: &Store) -> Views {
    let locks = LOCKS.map(|lock| LockName::parse(lock).expect("the name is legal"));
    locks
        .into_iter()
        .filter_map(|lock| Some((lock.clone(), store.lock(&lock)?)))
        .collect()
}

fn alive(views: &Views, holder: &str) -> bool {
    views.values().any(|view| {
        view.holders
            .iter()
            .chain(&view.queue)
            .any(|other| other.holder == holder)
    })
}

/// A contender by its lock and name. Two that had the same name had different tokens.
type Key = (LockName, HolderId, u64);

fn keys<'v>(
    views: &'v Views,
    of: impl Fn(&'v LockView) -> Vec<&'v ContenderView> + 'v,
) -> impl Iterator<Item = Key> + 'v {
    views.iter().flat_map(move |(lock, view)| {
        of(view)
            .into_iter()
            .map(|who| (lock.clone(), who.holder.clone(), who.fencing_token.0))
    })
}

fn all(view: &LockView) -> Vec<&ContenderView> {
    view.holders.iter().chain(&view.queue).collect()
}

/// Exactly those who hold now and did not before are told to begin; exactly those who did and do not are told to end, with
/// all that a look at the state said about them while they held.
fn check_holds(before: &Views, after: &Views, events: &[Event]) {
    let holding = |views: &Views| -> BTreeMap<Key, ContenderView> {
        let holders = views.iter().flat_map(|(lock, view)| {
            let named = |who: &ContenderView| (lock.clone(), who.holder.clone(), who.fencing_token.0);
            view.holders.iter().map(move |who| (named(who), who.clone()))
        });
        holders.collect()
    };
    let (held, hold) = (holding(before), holding(after));
    let (mut began, mut ended) = (BTreeMap::new(), BTreeMap::new());
    for event in events {
        match event {
            Event::HoldBegan(hold) => {
                assert!(began.insert(key_of(hold), hold).is_none(), "told twice: {hold}")
            }
            Event::HoldEnded { hold, .. } => {
                assert!(ended.insert(key_of(hold), hold).is_none(), "told twice: {hold}");
            }
            _ => {}
        }
    }
    assert!(
        began
            .keys()
            .eq(hold.keys().filter(|key| !held.contains_key(*key))),
        "beginnings that were told"
    );
    assert!(
        ended
            .keys()
            .eq(held.keys().filter(|key| !hold.contains_key(*key))),
        "ends that were told"
    );
    for (views, told) in [(&hold, &began), (&held, &ended)] {
        for (key, hold) in told {
            let view = &views[key];
            let texts = |texts: [&Arc<str>; 3]| texts.map(|text| text.to_string());
            assert_eq!(
                (hold.session, hold.mode, hold.permits),
                (view.session, view.mode, view.permits)
            );
            assert_eq!(
                texts([&hold.owner, &hold.note, &hold.address]),
                texts([&view.owner, &view.note, &view.address])
            );
            assert!(
                hold.since_ms
                    .is_none_or(|since_ms| since_ms == view.since_ms || view.address.is_empty())
            );
        }
    }
}

fn key_of(hold: &Hold) -> Key {
    (hold.lock.clone(), hold.holder.to_string(), hold.fencing_token.0)
}

/// Exactly those who waited and hold now are told so; exactly those who are gone are reported, before whomever they
/// let in.
fn check_events(before: &Views, after: &Views, events: &[Event], store: &Store) {
    let waited: BTreeSet<Key> = keys(before, |view| view.queue.iter().collect()).collect();
    let hold: BTreeSet<Key> = keys(after, |view| view.holders.iter().collect()).collect();
    let mut expected: Vec<Key> = waited.intersection(&hold).cloned().collect();
    let mut granted = Vec::new();
    for event in events {
        if let Event::Granted { session, grant } = event {
            granted.push((grant.lock.clone(), grant.holder.clone(), grant.fencing_token.0));
            assert_eq!(
                store.standing(&grant.lock, &grant.holder),
                Some(Standing::Holds(grant.clone()))
            );
            let view = &after[&grant.lock];
            assert!(
                view.holders
                    .iter()
                    .any(|holder| holder.holder == grant.holder && holder.session == *session)
            );
        }
    }
    granted.sort();
    expected.sort();
    assert_eq!(granted, expected, "grants that were told");

    check_holds(before, after, events);
    for (lock, view) in after {
        let holds = store.holds_of(lock);
        assert!(
            holds
                .iter()
                .map(|hold| (&*hold.holder, hold.fencing_token))
                .eq(view
                    .holders
                    .iter()
                    .map(|holder| (&*holder.holder, holder.fencing_token)))
        );
        for event in events {
            if let Event::HoldBegan(began) = event
                && began.lock == *lock
            {
                let hold = holds
                    .iter()
                    .find(|hold| hold.holder == began.holder)
                    .expect("it holds");
                let since_ms = hold.since_ms.or(began.since_ms);
                assert_eq!(
                    Hold {
                        since_ms,
                        ..Hold::clone(hold)
                    },
                    **began
                );
            }
        }
    }

    let were: BTreeSet<Key> = keys(before, all).collect();
    let are: BTreeSet<Key> = keys(after, all).collect();
    let mut gone: Vec<_> = were
        .difference(&are)
        .map(|(lock, holder, _)| (lock.clone(), holder.clone()))
        .collect();
    let mut ended = Vec::new();
    for (at, event) in events.iter().enumerate() {
        if let Event::ContenderEnded { lock, holder, .. } = event {
            ended.push((lock.clone(), holder.clone()));
            let granted_before = events[..at].iter().any(
                |event| matches!(event, Event::Granted { grant: Grant { lock: of, .. }, .. } if of == lock),
            );
            assert!(
                !granted_before,
                "a grant was told before the end that made it possible"
            );
        }
    }
    gone.sort();
    ended.sort();
    assert_eq!(ended, gone, "ends that were told");
}

/// Who held a lock and is still there holds it.
fn check_nothing_taken_back(before: &Views, after: &Views) {
    let held: BTreeSet<Key> = keys(before, |view| view.holders.iter().collect()).collect();
    let waits: BTreeSet<Key> = keys(after, |view| view.queue.iter().collect()).collect();
    assert_eq!(held.intersection(&waits).next(), None);
}

/// Nobody overtakes: those who are left stand in the old order, newcomers behind them.
fn check_order(before: &Views, after: &Views) {
    let order: Vec<Key> = keys(after, all).collect();
    let left = keys(before, all).filter(|key| order.contains(key));
    let still: Vec<Key> = left.collect();
    for lock in after.keys() {
        let of = |key: &&Key| key.0 == *lock;
        let still: Vec<&Key> = still.iter().filter(of).collect();
        let order: Vec<&Key> = order.iter().filter(of).collect();
        assert_eq!(order[..still.len()], still);
    }
}

/// Only sessions that live have contenders.
fn check_sessions(after: &Views, store: &Store) {
    for contender in after.values().flat_map(all) {
        assert_eq!(store.session_fate(contender.session), SessionFate::Live);
    }
    for view in store.sessions() {
        let of_session = store.contenders_of(view.session);
        let expected = after
            .values()
            .flat_map(all)
            .filter(|contender| contender.session == view.session);
        assert_eq!(of_session.len(), expected.count());
        for (lock, holder, holds) in of_session {
            let standing = store.standing(&lock, &holder).expect("it was listed");
            assert_eq!(holds, matches!(standing, Standing::Holds(_)));
        }
    }
}

/// What an acquire answers is so, unless it repeats what was long ago.
fn check_reply(command: &Command, outcome: &Outcome, store: &Store, may_repeat: bool) {
    if let Command::Lock(LockCommand::Acquire { wait: false, .. }) = command {
        assert!(!matches!(outcome, Ok(Reply::Queued(_))), "a try was queued");
    }
    match outcome {
        Ok(Reply::Granted(grant)) if !may_repeat => {
            assert_eq!(
                store.standing(&grant.lock, &grant.holder),
                Some(Standing::Holds(grant.clone()))
            );
            assert!(store.is_held_with(&grant.lock, grant.fencing_token));
        }
        Ok(Reply::Queued(place)) => {
            assert_eq!(
                store.standing(&place.lock, &place.holder),
                Some(Standing::Waits(place.clone()))
            );
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn locks_keep_their_promises(steps in vec(any_step(), 0..300)) {
        let mut world = World::new();
        let opening = (0..SESSIONS).map(|session| Step { session, request: None, lock: 0, what: What::OpenSession });
        for step in opening.chain(steps) {
            world.take(&step);
        }
    }
}
