//! Random steps of the lock protocol among random writes of ZooKeeper clients, sessions that end and transactions that
//! fail, on a store and on a replica that is restored from a snapshot before each step. What must hold is said by the
//! functions whose names begin with `check`; a failure prints the shortest list of steps that shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use znode_store::{
    AttemptId, Command, ContenderEnd, ContenderView, CreateMode, CreatePath, Data, Downgraded, EntryContext,
    Event, Grant, Hold, HolderId, Identities, LockCommand, LockMode, LockName, LockView, LockWish, Op,
    Outcome, Password, Reply, Request, RequestId, SessionFate, SessionId, Standing, Store, WithdrawCause,
    ZPath, Zxid,
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
        delay: bool,
    },
    Release(u8),
    Withdraw {
        contender: u8,
        attempt: u8,
        cause: WithdrawCause,
    },
    Break(u8),
    Downgrade(u8, bool),
    Upgrade {
        contender: u8,
        wait: bool,
    },
    WithdrawUpgrade {
        contender: u8,
        cause: WithdrawCause,
    },
    /// The step's lock and the next one, exclusive or shared.
    AcquireMany {
        shared: bool,
        owner: u8,
        wait: bool,
    },
    ReleaseMany(u8),
    WithdrawMany {
        contender: u8,
        cause: WithdrawCause,
    },
    Configure {
        limit: Option<Option<u8>>,
        draining: Option<bool>,
    },
    Revoke(Option<u8>),
    Answer(u8),
    /// All locks that are closed.
    /// So many halves of the time are over for which locks are closed.
    Pass(u8),
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

fn owner() -> impl Strategy<Value = u8> {
    prop_oneof![4 => Just(0u8), 1 => Just(1)]
}

fn mostly() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.8)
}

fn cause() -> impl Strategy<Value = WithdrawCause> {
    prop_oneof![Just(WithdrawCause::TimedOut), Just(WithdrawCause::Abandoned)]
}

fn any_step() -> impl Strategy<Value = Step> {
    let names = prop::sample::select(vec!["lock-", "x__READ__", "x__rlock__", "n_", "_c_1-lease-"]);
    let what = prop_oneof![
        12 => (0u8..10, 1u8..4, owner(), mostly(), mostly(), prop::bool::weighted(0.2)).prop_map(
            |(mode, permits, owner, reentrant, wait, delay)| {
                What::Acquire { mode, permits, owner, reentrant, wait, delay }
            }
        ),
        3 => (any::<u8>(), any::<bool>()).prop_map(|(contender, shared)| What::Downgrade(contender, shared)),
        4 => (any::<u8>(), mostly()).prop_map(|(contender, wait)| What::Upgrade { contender, wait }),
        2 => (any::<u8>(), cause()).prop_map(|(contender, cause)| What::WithdrawUpgrade { contender, cause }),
        3 => (any::<bool>(), owner(), mostly())
            .prop_map(|(shared, owner, wait)| What::AcquireMany { shared, owner, wait }),
        2 => any::<u8>().prop_map(What::ReleaseMany),
        2 => (any::<u8>(), cause()).prop_map(|(contender, cause)| What::WithdrawMany { contender, cause }),
        1 => prop::option::of(1u8..6).prop_map(|limit| What::Configure { limit: Some(limit), draining: None }),
        1 => any::<bool>().prop_map(|draining| What::Configure { limit: None, draining: Some(draining) }),
        1 => Just(What::Configure { limit: None, draining: Some(false) }),
        1 => prop::option::of(any::<u8>()).prop_map(What::Revoke),
        1 => any::<u8>().prop_map(What::Answer),
        3 => (0u8..3).prop_map(What::Pass),
        8 => any::<u8>().prop_map(What::Release),
        6 => (any::<u8>(), any::<u8>(), cause()).prop_map(|(contender, attempt, cause)| {
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
    /// The last call of `upgrade` of a contender.
    upgrades: BTreeMap<HolderId, u64>,
    /// The largest tokens that were ever granted.
    tokens: BTreeMap<LockName, Tokens>,
}

/// The largest tokens of a lock's grants.
#[derive(Debug, Default)]
struct Tokens {
    any: u64,
    exclusive: u64,
    upgradeable: u64,
}

type Views = BTreeMap<LockName, LockView>;

impl World {
    fn new() -> Self {
        Self {
            replicas: Replicas::new(),
            next_call: 1,
            calls: BTreeMap::new(),
            requests: BTreeMap::new(),
            upgrades: BTreeMap::new(),
            tokens: BTreeMap::new(),
        }
    }

    fn take(&mut self, step: &Step) {
        let before = views(&self.replicas.store);
        let lock = LockName::parse(LOCKS[usize::from(step.lock)]).expect("the name is legal");
        let session = match (&step.what, before.get(&lock).map(all).as_deref()) {
            // Three of four ask for what is their own.
            (
                What::Release(n)
                | What::Withdraw { contender: n, .. }
                | What::Downgrade(n, _)
                | What::Upgrade { contender: n, .. }
                | What::WithdrawUpgrade { contender: n, .. }
                | What::ReleaseMany(n)
                | What::WithdrawMany { contender: n, .. }
                | What::Answer(n),
                Some(contenders),
            ) if n % 4 != 0 && !contenders.is_empty() => {
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
        check_holders(&before, &after);
        check_closed(&before, &after, &events);
        check_asked(&after, store);
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
                delay,
            } => {
                let call = self.call();
                let (mode, permits) = match mode {
                    8.. => (LockMode::Upgradeable, 1),
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
                    lock_delay_ms: u32::from(delay),
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
                by: "operator".into(),
                reason: "reason".into(),
            }),
            &What::Downgrade(n, shared) => Command::Lock(LockCommand::Downgrade {
                lock,
                holder: pick(n),
                to: if shared {
                    Downgraded::Shared
                } else {
                    Downgraded::Upgradeable
                },
            }),
            &What::Upgrade { contender, wait } => {
                let (holder, call) = (pick(contender), self.call());
                self.upgrades.insert(holder.clone(), call);
                Command::Lock(LockCommand::Upgrade {
                    lock,
                    holder,
                    attempt: AttemptId(call),
                    wait,
                })
            }
            &What::WithdrawUpgrade { contender, cause } => {
                let holder = pick(contender);
                let attempt = self.upgrades.get(&holder).copied().unwrap_or(0);
                Command::Lock(LockCommand::Withdraw {
                    lock,
                    holder,
                    attempt: AttemptId(attempt),
                    cause,
                })
            }
            &What::AcquireMany { shared, owner, wait } => {
                let call = self.call();
                let wish = |lock| LockWish {
                    lock,
                    mode: if shared {
                        LockMode::Shared
                    } else {
                        LockMode::Exclusive
                    },
                    permits: 1,
                    owner: OWNERS[usize::from(owner)].into(),
                    reentrant: true,
                    note: "".into(),
                    address: "".into(),
                    lock_delay_ms: 0,
                };
                Command::Lock(LockCommand::AcquireMany {
                    wishes: [lock, neighbour(step.lock)].map(wish).into(),
                    // Far from each other's and from those of single calls.
                    guid: u128::from(call) << 64,
                    attempt: AttemptId(call),
                    wait,
                })
            }
            &What::ReleaseMany(n) => Command::Lock(LockCommand::ReleaseMany {
                holders: self.both(step, lock, pick(n)),
            }),
            &What::WithdrawMany { contender, cause } => {
                let holder = pick(contender);
                let known = self.calls.get(&holder).and_then(|calls| calls.known.last());
                Command::Lock(LockCommand::WithdrawMany {
                    attempt: AttemptId(known.copied().unwrap_or(0)),
                    holders: self.both(step, lock, holder),
                    cause,
                })
            }
            &What::Configure { limit, draining } => Command::Lock(LockCommand::Configure {
                lock,
                limit: limit.map(|limit| limit.map(u32::from)),
                draining,
            }),
            What::Revoke(n) => Command::Lock(LockCommand::Revoke {
                lock,
                holder: n.map(pick),
                by: "operator".into(),
                reason: "reason".into(),
            }),
            What::Answer(n) => Command::Lock(LockCommand::AnswerRevoke {
                lock,
                holder: pick(*n),
                answer: "answer".into(),
            }),
            What::Pass(share) => {
                let closed = self.replicas.store.closed_locks().into_iter();
                let passed = |delay_ms: u32| delay_ms * u32::from(*share) / 2;
                Command::Lock(LockCommand::CountDelays {
                    locks: closed
                        .map(|closed| (closed.lock, closed.at, passed(closed.delay_ms)))
                        .collect(),
                    term: 1,
                })
            }
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

    fn call(&mut self) -> u64 {
        self.next_call += 1;
        self.next_call - 1
    }

    /// A contender, and the one in the next lock that stands for one of the same calls, if there is one.
    fn both(&self, step: &Step, lock: LockName, holder: HolderId) -> Vec<(LockName, HolderId)> {
        let none = Calls::default();
        let calls = |holder: &str| &self.calls.get(holder).unwrap_or(&none).known;
        let other = neighbour(step.lock);
        let view = self.replicas.store.lock(&other);
        let mut contenders = view
            .iter()
            .flat_map(all)
            .map(|contender| contender.holder.clone());
        let twin = contenders.rfind(|other| !calls(other).is_disjoint(calls(&holder)));
        let mut both = vec![(lock, holder)];
        both.extend(twin.map(|twin| (other, twin)));
        both
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
            (Command::Lock(LockCommand::AcquireMany { attempt, .. }), Ok(Reply::Multi(parts))) => {
                for part in parts {
                    let holder = match part {
                        Reply::Granted(grant) => &grant.holder,
                        Reply::Queued(place) => &place.holder,
                        other => panic!("an acquire was answered {other}"),
                    };
                    let calls = self.calls.entry(holder.clone()).or_default();
                    calls.known.insert(attempt.0);
                }
            }
            (Command::Lock(LockCommand::ReleaseMany { holders }), Ok(Reply::ReleasedMany(released))) => {
                for ((_, holder), _) in holders.iter().zip(released).filter(|(_, holds)| holds.is_some()) {
                    if let Some(calls) = self.calls.get_mut(holder) {
                        calls.released += 1;
                    }
                }
            }
            (Command::Lock(LockCommand::WithdrawMany { holders, attempt, .. }), Ok(Reply::Withdrawn)) => {
                for (_, holder) in holders {
                    let owned = before
                        .values()
                        .flat_map(all)
                        .any(|contender| contender.holder == *holder && contender.session == session);
                    if let Some(calls) = self.calls.get_mut(holder).filter(|_| owned) {
                        calls.known.remove(&attempt.0);
                    }
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

    /// Of two conflicting grants of one lock the later one has the larger token. (Of other clients' contenders the tokens
    /// cannot be changed; their positions increase among each other.)
    fn check_tokens(&mut self, before: &Views, after: &Views) {
        for (lock, view) in after {
            let held = before.get(lock).into_iter().flat_map(|view| &view.holders);
            let held: BTreeMap<&str, &ContenderView> =
                held.map(|holder| (holder.holder.as_str(), holder)).collect();
            let tokens = self.tokens.entry(lock.clone()).or_default();
            for holder in &view.holders {
                let token = holder.fencing_token.0;
                let was = held.get(holder.holder.as_str());
                let above = match (was.map(|was| was.mode), holder.mode) {
                    (Some(was), now) if was == now => continue,
                    // A downgrade gives nobody a new token.
                    (Some(LockMode::Exclusive), _) | (Some(LockMode::Upgradeable), LockMode::Shared) => {
                        assert_eq!(Some(token), was.map(|was| was.fencing_token.0), "{lock}");
                        0
                    }
                    (_, LockMode::Exclusive) => tokens.any,
                    (_, LockMode::Upgradeable) => tokens.exclusive.max(tokens.upgradeable),
                    (_, LockMode::Shared | LockMode::Semaphore { .. }) => tokens.exclusive,
                };
                let ours = self.calls.contains_key(&holder.holder);
                assert!(!ours || token > above, "{lock}: {token} after {above}");
                match holder.mode {
                    LockMode::Exclusive => tokens.exclusive = token.max(tokens.exclusive),
                    LockMode::Upgradeable => tokens.upgradeable = token.max(tokens.upgradeable),
                    LockMode::Shared | LockMode::Semaphore { .. } => {}
                }
                tokens.any = token.max(tokens.any);
            }
        }
    }
}

/// The lock after a step's own.
fn neighbour(lock: u8) -> LockName {
    LockName::parse(LOCKS[(usize::from(lock) + 1) % LOCKS.len()]).expect("the name is legal")
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

/// A contender by its lock and name. No step deletes a lock and creates it again, so it is the same before and after.
type Key = (LockName, HolderId);

fn keys<'v>(
    views: &'v Views,
    of: impl Fn(&'v LockView) -> Vec<&'v ContenderView> + 'v,
) -> impl Iterator<Item = Key> + 'v {
    views
        .iter()
        .flat_map(move |(lock, view)| of(view).into_iter().map(|who| (lock.clone(), who.holder.clone())))
}

fn all(view: &LockView) -> Vec<&ContenderView> {
    view.holders.iter().chain(&view.queue).collect()
}

/// A hold by its lock, its contender and its token: an upgrade ends one and begins another.
type HoldKey = (LockName, HolderId, Zxid);

/// Exactly those who hold now and did not before are told to begin; exactly those who did and do not are told to end, with
/// all that a look at the state said about them while they held.
fn check_holds(before: &Views, after: &Views, events: &[Event]) {
    let holding = |views: &Views| -> BTreeMap<HoldKey, ContenderView> {
        let holders = views.iter().flat_map(|(lock, view)| {
            let named = |who: &ContenderView| (lock.clone(), who.holder.clone(), who.fencing_token);
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

fn key_of(hold: &Hold) -> HoldKey {
    (hold.lock.clone(), hold.holder.to_string(), hold.fencing_token)
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
            granted.push((grant.lock.clone(), grant.holder.clone()));
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
    let mut gone: Vec<_> = were.difference(&are).cloned().collect();
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

/// The holders of a lock get along with each other, however they came to it; and nobody gets in who should not.
fn check_holders(before: &Views, after: &Views) {
    for (lock, view) in after {
        let count = |mode| view.holders.iter().filter(|holder| holder.mode == mode).count();
        let permits = |view: &LockView| -> u32 { view.holders.iter().map(|holder| holder.permits).sum() };
        let (alone, upgradeable) = (count(LockMode::Exclusive), count(LockMode::Upgradeable));
        let plain = alone + upgradeable + count(LockMode::Shared);
        assert!(plain == 0 || plain == view.holders.len(), "{view:?}");
        assert!(alone == 0 || view.holders.len() == 1, "{view:?}");
        assert!(upgradeable <= 1, "{view:?}");
        let was = before.get(lock);
        if let Some(LockMode::Semaphore { limit }) = view.mode {
            // After the limit was lowered the use goes down, and never up, until it is below.
            let used = was.map_or(0, permits);
            assert!(permits(view) <= limit.max(used), "{view:?}");
        }
        let upgrading = |view: &LockView| {
            view.holders
                .iter()
                .any(|holder| holder.upgrading_since_ms.is_some())
        };
        let shut = |view: &LockView| view.draining || view.closed.is_some();
        if let Some(was) = was
            && (shut(was) && shut(view) || upgrading(was) && upgrading(view))
        {
            let held: BTreeSet<&str> = was.holders.iter().map(|holder| &*holder.holder).collect();
            assert!(
                view.holders.iter().all(|holder| held.contains(&*holder.holder)),
                "{view:?}"
            );
        }
        // An upgrade waits for somebody, or for the lock to be opened.
        assert!(
            !upgrading(view) || view.holders.len() > 1 || view.closed.is_some(),
            "{view:?}"
        );
    }
}

/// A lock is closed when, and only when, a holder with a lock-delay is lost with its session.
fn check_closed(before: &Views, after: &Views, events: &[Event]) {
    let lost: BTreeSet<(&LockName, &str)> = events
        .iter()
        .filter_map(|event| match event {
            Event::ContenderEnded {
                lock,
                holder,
                how: ContenderEnd::SessionExpired,
                ..
            } => Some((lock, &**holder)),
            _ => None,
        })
        .collect();
    for (lock, view) in after {
        // What was closed stays so while the znode is gone, which the views do not show.
        let was = before.get(lock);
        if was.is_none() && view.closed.is_some() {
            continue;
        }
        let mut held = was.into_iter().flat_map(|view| &view.holders);
        let unclean = held.any(|holder| holder.lock_delay_ms > 0 && lost.contains(&(lock, &*holder.holder)));
        let was_closed = was.is_some_and(|view| view.closed.is_some());
        let opened = events
            .iter()
            .any(|event| matches!(event, Event::LockOpened(opened) if opened == lock));
        assert_eq!(
            view.closed.is_some(),
            unclean || was_closed && !opened,
            "{view:?}"
        );
    }
}

/// Sessions are told of exactly those holders that were asked and have not answered.
fn check_asked(after: &Views, store: &Store) {
    let asked = |view: &ContenderView| view.revoke.as_ref().is_some_and(|revoke| revoke.answer.is_none());
    let expected: BTreeSet<Key> = keys(after, all)
        .zip(after.values().flat_map(all))
        .filter(|(_, view)| asked(view))
        .map(|(key, _)| key)
        .collect();
    let sessions = store.sessions().into_iter();
    let told: BTreeSet<Key> = sessions
        .flat_map(|view| store.revocations(view.session))
        .map(|(lock, holder, _)| (lock, holder))
        .collect();
    assert_eq!(told, expected);
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
            assert_eq!(holds, !matches!(standing, Standing::Waits(_)));
        }
    }
}

/// What an acquire answers is so, unless it repeats what was long ago.
fn check_reply(command: &Command, outcome: &Outcome, store: &Store, may_repeat: bool) {
    if let Command::Lock(LockCommand::Acquire { wait: false, .. }) = command
        && !may_repeat
    {
        assert!(!matches!(outcome, Ok(Reply::Queued(_))), "a try was queued");
    }
    // It holds, and waits to be the only one.
    if let Command::Lock(LockCommand::Upgrade { .. }) = command
        && let Ok(Reply::Queued(place)) = outcome
    {
        let standing = store.standing(&place.lock, &place.holder);
        assert!(matches!(standing, Some(Standing::Upgrades(_))), "{standing:?}");
        return;
    }
    match outcome {
        // A call that enters once more while another one upgrades.
        Ok(Reply::Granted(grant))
            if matches!(
                store.standing(&grant.lock, &grant.holder),
                Some(Standing::Upgrades(_))
            ) =>
        {
            assert_eq!(grant.mode, LockMode::Upgradeable);
        }
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
