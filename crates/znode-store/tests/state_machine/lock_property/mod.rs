//! Random steps of the lock protocol among random writes of ZooKeeper clients, sessions that end and transactions that
//! fail, on a store and on a replica that is restored from a snapshot before each step. The steps are drawn in `steps.rs`;
//! what must hold after each is said in `rules.rs`. A failure prints the shortest list of steps that shows it.

mod rules;
mod steps;

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use znode_store::{
    AttemptId, Command, ContenderView, CreateMode, CreatePath, Data, Downgraded, EntryContext, HolderId,
    Identities, LockCommand, LockMode, LockName, LockView, LockWish, MAX_RELEASED, NamespaceName, Op,
    Outcome, Password, Quotas, Reply, Request, RequestId, SessionId, WithdrawCause, ZPath, Zxid,
};

use self::rules::*;
use self::steps::*;
use crate::cases;
use crate::lock_script::check_rule;
use crate::replicas::Replicas;

/// The calls that a contender stands for.
#[derive(Debug, Default)]
struct Calls {
    /// Those that were neither withdrawn nor forgotten, in the order in which they came.
    known: Vec<u64>,
    /// Number of released calls; the release does not say which.
    released: usize,
    /// Calls released too long ago to be recorded.
    forgotten: Vec<u64>,
}

impl Calls {
    fn withdraw(&mut self, call: u64) {
        self.known.retain(|known| *known != call);
    }

    /// Releases a hold. Only the last released ones are kept.
    fn release(&mut self) {
        self.released += 1;
        if self.released > MAX_RELEASED {
            self.forgotten.push(self.known.remove(0));
            self.released -= 1;
        }
    }
}

struct World {
    replicas: Replicas,
    /// The number of the next call of `acquire`.
    next_call: u64,
    calls: BTreeMap<HolderId, Calls>,
    /// Call that a request id of a session stands for.
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

impl World {
    fn new() -> Self {
        let mut replicas = Replicas::new();
        // Their usage is compared after each step.
        for name in ["a", "c"] {
            let command = Command::SetQuotas {
                namespace: NamespaceName::parse(name).expect("the name is legal"),
                quotas: Some(Quotas::default()),
            };
            replicas.apply(&EntryContext { time_ms: 0, term: 1 }, Request::anonymous(command));
        }
        Self {
            replicas,
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
                    names: Default::default(),
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
                    Some(known) => known[usize::from(*attempt) % known.len()],
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
                    names: Default::default(),
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
                    as_of: Zxid(u64::MAX),
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
        let known = |holder: &str| &self.calls.get(holder).unwrap_or(&none).known;
        let other = neighbour(step.lock);
        let view = self.replicas.store.lock(&other);
        let mut contenders = view
            .iter()
            .flat_map(all)
            .map(|contender| contender.holder.clone());
        let twin = contenders.rfind(|other| known(other).iter().any(|call| known(&holder).contains(call)));
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
                let place = repeated.and_then(|first| calls.known.iter().position(|known| known == first));
                match (repeated, place) {
                    // Made again: the new call takes the old one's place, if that is still there.
                    (_, Some(place)) => calls.known[place] = attempt.0,
                    // Made again when all was over.
                    (Some(first), None) if !alive(after, holder) || calls.forgotten.contains(first) => return,
                    _ => calls.known.push(attempt.0),
                }
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
                    calls.known.push(attempt.0);
                }
            }
            (Command::Lock(LockCommand::ReleaseMany { holders }), Ok(Reply::ReleasedMany(released))) => {
                for ((_, holder), _) in holders.iter().zip(released).filter(|(_, holds)| holds.is_some()) {
                    if let Some(calls) = self.calls.get_mut(holder) {
                        calls.release();
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
                        calls.withdraw(attempt.0);
                    }
                }
            }
            (Command::Lock(LockCommand::Release { holder, .. }), Ok(_)) => {
                // Other clients' contenders stand for no calls.
                if let Some(calls) = self.calls.get_mut(holder) {
                    calls.release();
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
                    calls.withdraw(attempt.0);
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

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn locks_keep_their_promises(steps in vec(any_step(), 0..300)) {
        let mut world = World::new();
        let opening = (0..SESSIONS).map(|session| Step { session, request: None, lock: 0, what: What::OpenSession });
        for step in opening.chain(steps) {
            world.take(&step);
        }
    }
}
