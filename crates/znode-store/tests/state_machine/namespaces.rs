//! Namespaces: the commands of scripts, a naive count of what a namespace uses, and a property about refusals. The naive count visits the tree
//! by the public queries, after every command of every test that uses `replicas`.

use std::collections::BTreeSet;
use std::error::Error;

use goldenscript::{ArgumentConsumer, Command as Line};
use proptest::collection::vec;
use proptest::prelude::*;
use znode_store::*;

use crate::cases;
use crate::replicas::{Replicas, draw, restore};
use crate::script::{Output, Script, caller};

/// Runs a command that sets or removes quotas.
pub fn set(script: &mut Script, line: &Line) -> Output {
    let mut args = line.consume_args();
    args.take_key("times");
    let namespace = NamespaceName::parse(args.next_pos().ok_or("which namespace?")?)?;
    let mut number = |key| args.take_key(key).map(str::parse).transpose();
    let quotas = Quotas {
        sessions: number("sessions")?,
        locks: number("locks")?,
        znodes: number("znodes")?,
        bytes: number("bytes")?,
        requests_per_second: args.take_key("rate").map(str::parse).transpose()?,
    };
    let quotas = (line.name == "quotas").then_some(quotas);
    script.apply(args, Command::SetQuotas { namespace, quotas })
}

/// Shows one namespace, or a page of them.
pub fn show(store: &Store, mut args: ArgumentConsumer<'_>, what: &str) -> Output {
    let caller = caller(&mut args)?;
    let view = store.seen_by(&caller);
    if what == "namespace" {
        let name = NamespaceName::parse(args.next_pos().ok_or("which namespace?")?)?;
        args.reject_next()?;
        return Ok(match view.namespace(&name) {
            Ok(namespace) => namespace.to_string(),
            Err(refusal) => refusal.to_string(),
        });
    }
    let after = args.take_key("after");
    let count = args.take_key("count").map_or(Ok(100), str::parse)?;
    args.reject_next()?;
    let page = match view.namespaces_page(after, count) {
        Ok(page) => page,
        Err(refusal) => return Ok(refusal.to_string()),
    };
    let mut lines: Vec<_> = page.namespaces.iter().map(ToString::to_string).collect();
    lines.extend(page.next_after.map(|name| format!("and more after {name}")));
    Ok::<_, Box<dyn Error>>(lines.join("\n"))
}

/// Counts what a namespace uses.
fn naive_usage(store: &Store, name: &str) -> NamespaceUsage {
    let (mut usage, mut sessions, mut locks) = (NamespaceUsage::default(), BTreeSet::new(), BTreeSet::new());
    let mut todo: Vec<ZPath> = ["/", "/locks/"]
        .iter()
        .map(|above| ZPath::parse(&format!("{above}{name}")).expect("a name is a component"))
        .collect();
    while let Some(path) = todo.pop() {
        let Some((data, stat)) = store.get(&path) else {
            continue;
        };
        usage.znodes += 1;
        usage.bytes += data.len() as u64;
        if let Some(session) = stat.ephemeral_owner.session() {
            sessions.insert(session);
            locks.extend(lock_of_contender(&path));
        }
        let children = store.children(&path).expect("it exists");
        todo.extend(children.iter().map(|child| path.join(child).expect("it exists")));
    }
    NamespaceUsage {
        sessions: sessions.len() as u64,
        locks: locks.len() as u64,
        ..usage
    }
}

/// Checks that the usage of every namespace is what a visit of the tree finds.
pub fn check_usage(store: &Store) {
    for NamespaceView { namespace, usage, .. } in store.namespaces() {
        assert_eq!(usage, naive_usage(store, namespace.as_str()), "{namespace}");
        assert_eq!(usage, store.recounted_usage(&namespace), "{namespace}");
        let prefix = format!("{namespace}/");
        let in_use = store.locks("", None, usize::MAX).into_iter();
        let in_use = in_use.map(|summary| summary.lock.to_string());
        let count = in_use
            .filter(|lock| lock == namespace.as_str() || lock.starts_with(&prefix))
            .count();
        assert_eq!(usage.locks, count as u64, "the locks in use of {namespace}");
    }
}

const NAMES: [&str; 2] = ["a", "b"];
const PATHS: [&str; 6] = [
    "/a",
    "/a/x",
    "/a/x/y",
    "/b",
    "/b/lock-0000000001",
    "/locks/a/n-0000000007",
];
const LOCKS: [&str; 4] = ["a", "a/x", "b/x", "b/y"];

#[derive(Debug, Clone)]
enum What {
    SetQuotas(Quotas),
    RemoveQuotas,
    Open,
    Close,
    Create {
        mode: CreateMode,
        bytes: usize,
        parents: bool,
    },
    Delete {
        recursive: bool,
    },
    Set {
        bytes: usize,
    },
    Put {
        bytes: usize,
    },
    Acquire {
        shared: bool,
        lease: bool,
    },
    AcquireMany,
    Release,
    Configure {
        draining: bool,
    },
    Multi {
        bytes: usize,
    },
}

#[derive(Debug, Clone)]
struct Step {
    session: u64,
    name: usize,
    path: usize,
    lock: usize,
    what: What,
}

fn any_step() -> impl Strategy<Value = Step> {
    let limit = || prop::option::of(0u64..5);
    let quotas = (limit(), limit(), limit(), prop::option::of(0u64..300)).prop_map(
        |(sessions, locks, znodes, bytes)| Quotas {
            sessions,
            locks,
            znodes: znodes.map(|znodes| znodes * 2),
            bytes,
            requests_per_second: None,
        },
    );
    let modes = vec![
        CreateMode::Persistent,
        CreateMode::Container,
        CreateMode::PersistentSequential,
        CreateMode::Ephemeral,
        CreateMode::EphemeralSequential,
    ];
    let bytes = || 0usize..80;
    let what = prop_oneof![
        2 => quotas.prop_map(What::SetQuotas),
        1 => Just(What::RemoveQuotas),
        3 => Just(What::Open),
        1 => Just(What::Close),
        6 => (prop::sample::select(modes), bytes(), any::<bool>())
            .prop_map(|(mode, bytes, parents)| What::Create { mode, bytes, parents }),
        3 => any::<bool>().prop_map(|recursive| What::Delete { recursive }),
        3 => bytes().prop_map(|bytes| What::Set { bytes }),
        2 => bytes().prop_map(|bytes| What::Put { bytes }),
        5 => (any::<bool>(), any::<bool>()).prop_map(|(shared, lease)| What::Acquire { shared, lease }),
        2 => Just(What::AcquireMany),
        3 => Just(What::Release),
        1 => any::<bool>().prop_map(|draining| What::Configure { draining }),
        3 => bytes().prop_map(|bytes| What::Multi { bytes }),
    ];
    (1u64..4, 0..NAMES.len(), 0..PATHS.len(), 0..LOCKS.len(), what).prop_map(
        |(session, name, path, lock, what)| Step {
            session,
            name,
            path,
            lock,
            what,
        },
    )
}

fn open(session: SessionId) -> Command {
    Command::OpenSession {
        session,
        password: Password([0; 16]),
        timeout_ms: 1_000,
        name: "".into(),
        address: "".into(),
    }
}

fn wish(lock: &str, shared: bool) -> LockWish {
    LockWish {
        lock: LockName::parse(lock).expect("the name is legal"),
        mode: if shared {
            LockMode::Shared
        } else {
            LockMode::Exclusive
        },
        permits: 1,
        owner: "".into(),
        reentrant: false,
        note: "".into(),
        address: "".into(),
        lock_delay_ms: 0,
        names: Default::default(),
    }
}

impl Step {
    /// Returns the request of a step, whose number is `number`.
    fn request(&self, store: &Store, number: u64) -> Request {
        let session = SessionId(self.session);
        let path = ZPath::parse(PATHS[self.path]).expect("the path is legal");
        let namespace = NamespaceName::parse(NAMES[self.name]).expect("the name is legal");
        let data = |bytes: usize| Data::from(vec![b'x'; bytes]);
        let create = |mode: CreateMode, bytes, parents| Op::Create {
            path: CreatePath::parse(PATHS[self.path], mode.is_sequential()).expect("the path is legal"),
            data: data(bytes),
            acl: Acl::open(),
            mode,
            parents,
        };
        let set = |bytes| Op::Set {
            path: path.clone(),
            data: data(bytes),
            version: -1,
        };
        let (guid, attempt, wait) = (u128::from(number), AttemptId(number), true);
        let mut own = Some(session);
        let command = match self.what {
            What::SetQuotas(quotas) => Command::SetQuotas {
                namespace,
                quotas: Some(quotas),
            },
            What::RemoveQuotas => Command::SetQuotas {
                namespace,
                quotas: None,
            },
            What::Open => open(session),
            What::Close => Command::CloseSession { session },
            What::Create { mode, bytes, parents } => Command::Write(create(mode, bytes, parents)),
            What::Delete { recursive: true } => Command::Write(Op::DeleteRecursive { path: path.clone() }),
            What::Delete { recursive: false } => Command::Write(Op::Delete {
                path: path.clone(),
                version: -1,
            }),
            What::Set { bytes } => Command::Write(set(bytes)),
            What::Put { bytes } => Command::Mirror(vec![MirrorStep::Put(Mirrored {
                path: path.clone(),
                data: data(bytes),
                acl: Acl::open(),
                kind: MirroredKind::Persistent,
                version: 0,
                aversion: 0,
                ctime_ms: 0,
                mtime_ms: 0,
                creations: 0,
            })]),
            What::Acquire { shared, lease } => {
                own = own.filter(|_| !lease);
                let key = LeaseKey {
                    session: SessionId(0x100 + number),
                    password: Password([0; 16]),
                };
                Command::Lock(LockCommand::AcquireBounded {
                    wish: wish(LOCKS[self.lock], shared),
                    guid,
                    attempt,
                    wait,
                    bounds: HoldBounds::default(),
                    lease: lease.then_some(NewLease {
                        key,
                        timeout_ms: 1_000,
                    }),
                })
            }
            What::AcquireMany => Command::Lock(LockCommand::AcquireMany {
                wishes: vec![
                    wish(LOCKS[self.lock], true),
                    wish(LOCKS[(self.lock + 1) % 4], true),
                ],
                guid,
                attempt,
                wait,
            }),
            What::Release => {
                let lock = LockName::parse(LOCKS[self.lock]).expect("the name is legal");
                let view = store.lock(&lock);
                let holder = view.and_then(|view| Some(view.holders.first()?.clone()));
                own = holder.as_ref().map(|holder| holder.session).or(own);
                let holder = holder.map_or_else(|| "nobody".into(), |holder| holder.holder);
                Command::Lock(LockCommand::Release { lock, holder })
            }
            What::Configure { draining } => Command::Lock(LockCommand::Configure {
                lock: LockName::parse(LOCKS[self.lock]).expect("the name is legal"),
                limit: None,
                draining: Some(draining),
            }),
            What::Multi { bytes } => Command::Multi(vec![
                create(CreateMode::EphemeralSequential, bytes, true),
                set(bytes),
                create(CreateMode::PersistentSequential, bytes, true),
            ]),
        };
        let session = match command {
            Command::OpenSession { .. } | Command::CloseSession { .. } | Command::SetQuotas { .. } => None,
            _ => own,
        };
        Request {
            session,
            ..Request::anonymous(command)
        }
    }
}

/// Returns a quota that growth from one usage to another exceeds, if there is one.
fn exceeded(quotas: &Quotas, before: NamespaceUsage, after: NamespaceUsage) -> Option<(NamespaceQuota, u64)> {
    [
        (
            NamespaceQuota::Sessions,
            quotas.sessions,
            before.sessions,
            after.sessions,
        ),
        (NamespaceQuota::Locks, quotas.locks, before.locks, after.locks),
        (NamespaceQuota::Znodes, quotas.znodes, before.znodes, after.znodes),
        (NamespaceQuota::Bytes, quotas.bytes, before.bytes, after.bytes),
    ]
    .into_iter()
    .find(|(_, limit, before, after)| limit.is_some_and(|limit| after > before && *after > limit))
    .map(|(quota, _, _, after)| (quota, after))
}

/// Returns whether a command asks for nothing new, so that no quota refuses it. It may make the usage larger all the same: the record of a
/// waiter that gets a lock grows by its token.
fn asks_for_nothing_new(command: &Command) -> bool {
    matches!(
        command,
        Command::CloseSession { .. }
            | Command::Write(Op::Delete { .. } | Op::DeleteRecursive { .. })
            | Command::Lock(LockCommand::Release { .. })
    )
}

/// Applies a step to a state and to one without quotas, and compares the outcomes: the quotas refuse a step exactly if it asks for something
/// new, and would lead to a usage beyond them that is larger than before.
fn take(replicas: &mut Replicas, step: &Step, number: u64) {
    let entry = EntryContext { time_ms: 1, term: 1 };
    let quotas: Vec<NamespaceView> = replicas.store.namespaces().collect();
    let request = step.request(&replicas.store, number);
    let mut free = restore(draw(&mut replicas.store, 100));
    for view in &quotas {
        let (namespace, quotas) = (view.namespace.clone(), None);
        let remove = Request::anonymous(Command::SetQuotas { namespace, quotas });
        free.apply(&entry, remove, &mut Vec::new())
            .outcome
            .expect("it has quotas");
    }
    let would_be = free.apply(&entry, request.clone(), &mut Vec::new()).outcome;
    let (applied, _) = replicas.apply(&entry, request.clone());
    if let Command::SetQuotas { .. } = request.command {
        return;
    }
    let exceeded = quotas.iter().find_map(|view| {
        let after = naive_usage(&free, view.namespace.as_str());
        Some((view.namespace.clone(), exceeded(&view.quotas, view.usage, after)?))
    });
    let found = exceeded.filter(|_| !asks_for_nothing_new(&request.command));
    let refusal = match &applied.outcome {
        Err(Refusal::Multi { refusal, .. }) => Some(&**refusal),
        outcome => outcome.as_ref().err(),
    };
    match (refusal, &found) {
        (
            Some(Refusal::NamespaceQuotaExceeded {
                namespace,
                quota,
                would_be,
                ..
            }),
            Some((expected, (kind, after))),
        ) => {
            // Of several locks or operations the first one that is too many is reported.
            let is_single = !matches!(
                request.command,
                Command::Multi(_) | Command::Lock(LockCommand::AcquireMany { .. })
            );
            if is_single {
                assert_eq!((namespace, quota, would_be), (expected, kind, after), "{request}");
            }
        }
        (Some(Refusal::NamespaceQuotaExceeded { .. }), None) => {
            // Only a transaction may exceed a quota on its way.
            assert!(
                matches!(request.command, Command::Multi(_)),
                "{:?} refused: {request}",
                applied.outcome
            );
        }
        // Settings take no bytes of a quota, but the end of a drain grants the lock to waiters, whose records grow.
        (None, Some((_, (NamespaceQuota::Bytes, _))))
            if matches!(request.command, Command::Lock(LockCommand::Configure { .. })) => {}
        (_, Some(found)) => panic!("{found:?} not refused, but {:?}: {request}", applied.outcome),
        (_, None) => assert_eq!(applied.outcome.is_ok(), would_be.is_ok(), "{request}"),
    }
}

#[test]
fn there_is_an_end_to_namespaces() {
    let (mut store, entry) = (Store::new(), EntryContext { time_ms: 1, term: 1 });
    let mut set = |name: &str| {
        let command = Command::SetQuotas {
            namespace: NamespaceName::parse(name).expect("the name is legal"),
            quotas: Some(Quotas::default()),
        };
        store
            .apply(&entry, Request::anonymous(command), &mut Vec::new())
            .outcome
    };
    for n in 0..MAX_NAMESPACES {
        assert_eq!(set(&n.to_string()), Ok(Reply::LimitsSet));
    }
    let limit = MAX_NAMESPACES as u32;
    let what = Limited::Namespaces;
    assert_eq!(set("another"), Err(Refusal::LimitReached { what, limit }));
    assert_eq!(set("0"), Ok(Reply::LimitsSet), "it is one of them");
}

#[test]
fn delete_that_grants_a_lock_is_not_refused() {
    let limits = Quotas {
        bytes: Some(0),
        ..Quotas::default()
    };
    let contender = What::Create {
        mode: CreateMode::Ephemeral,
        bytes: 0,
        parents: true,
    };
    // The contender of a ZooKeeper client has no data, so the token in the record of the next one makes the usage larger.
    let delete = What::Delete { recursive: false };
    let mut replicas = Replicas::new();
    let request = Request::anonymous(open(SessionId(1)));
    replicas.apply(&EntryContext { time_ms: 0, term: 1 }, request);
    let usage = |replicas: &Replicas| {
        let view = replicas.store.namespaces().next();
        view.expect("there is one with quotas").usage.bytes
    };
    let mut before = 0;
    for (number, what) in (1..).zip([contender, What::AcquireMany, What::SetQuotas(limits), delete]) {
        if number == 4 {
            before = usage(&replicas);
        }
        let step = Step {
            session: 1,
            name: 0,
            path: 5,
            lock: 0,
            what,
        };
        take(&mut replicas, &step, number);
    }
    assert!(usage(&replicas) > before);
}

proptest! {
    #![proptest_config(cases(96))]

    #[test]
    fn quotas_refuse_exactly_what_exceeds_them(steps in vec(any_step(), 1..60)) {
        let mut replicas = Replicas::new();
        for session in 1..4 {
            let request = Request::anonymous(open(SessionId(session)));
            replicas.apply(&EntryContext { time_ms: 0, term: 1 }, request);
        }
        for (number, step) in (1..).zip(&steps) {
            take(&mut replicas, step, number);
        }
    }
}
