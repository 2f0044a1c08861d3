//! Costs of one command and one read, on one core: `cargo bench -p znode-store --bench state_machine`.
//!
//! Requests are built before the clock starts, because the caller decodes them; events are dropped after it stopped.
#![allow(
    missing_docs,
    reason = "criterion's macros make public functions without a word"
)]
#![allow(
    clippy::unwrap_used,
    reason = "a benchmark that cannot go on has nothing to say"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use znode_store::{
    Acl, AclEntry, AttemptId, Command, CreateMode, CreatePath, Data, EntryContext, Event, Identities,
    Identity, LockCommand, LockMode, LockName, LockWish, Op, Password, Perms, Reply, Request, SessionId,
    Store, ZPath,
};

/// Data of one znode, as the clients of lock services and registries have it.
const DATA_BYTES: usize = 100;

/// Children of one parent.
const SIBLINGS: u64 = 1_000;

/// Commands between two readings of the clock, like a large entry of the log.
const BATCH: usize = 500;

const SESSION: SessionId = SessionId(1);

fn entry() -> EntryContext {
    EntryContext {
        time_ms: 1_700_000_000_000,
        term: 1,
    }
}

fn apply(store: &mut Store, command: Command) -> Reply {
    store
        .apply(&entry(), Request::anonymous(command), &mut Vec::new())
        .outcome
        .unwrap()
}

/// The `n`-th znode below the parents.
fn node(n: u64) -> String {
    format!("/bench/p{:04}/node-{n:010}", n / SIBLINGS)
}

fn create(path: &str, acl: &Acl) -> Command {
    Command::Write(Op::Create {
        path: CreatePath::parse(path, false).unwrap(),
        data: vec![b'x'; DATA_BYTES].into(),
        acl: acl.clone(),
        mode: CreateMode::Persistent,
        parents: false,
    })
}

fn set(path: &str) -> Command {
    Command::Write(Op::Set {
        path: ZPath::parse(path).unwrap(),
        data: vec![b'y'; DATA_BYTES].into(),
        version: -1,
    })
}

/// A store with the parents for `nodes` znodes, and a session.
fn empty(nodes: u64) -> Store {
    let mut store = Store::new();
    let open = Command::OpenSession {
        session: SESSION,
        password: Password([0; 16]),
        timeout_ms: 10_000,
        name: "bench".into(),
        address: "".into(),
    };
    apply(&mut store, open);
    apply(&mut store, create("/bench", &Acl::open()));
    for parent in 0..nodes.div_ceil(SIBLINGS) {
        apply(&mut store, create(&format!("/bench/p{parent:04}"), &Acl::open()));
    }
    store
}

/// Returns a store with some znodes.
fn full(nodes: u64) -> Store {
    let mut store = empty(nodes);
    for n in 0..nodes {
        apply(&mut store, create(&node(n), &Acl::open()));
    }
    store
}

/// Applies the requests in batches, and returns how long that took.
fn timed(store: &mut Store, mut requests: impl Iterator<Item = Request>) -> Duration {
    let mut taken = Duration::ZERO;
    let mut events: Vec<Event> = Vec::new();
    loop {
        let batch: Vec<_> = requests.by_ref().take(BATCH).collect();
        if batch.is_empty() {
            return taken;
        }
        events.clear();
        let begun = Instant::now();
        for request in batch {
            let applied = store.apply(&entry(), request, &mut events);
            black_box(&applied).outcome.as_ref().unwrap();
        }
        taken += begun.elapsed();
    }
}

fn writes(c: &mut Criterion) {
    const NODES: u64 = 100_000;
    let mut group = c.benchmark_group("apply");
    group.throughput(Throughput::Elements(1));
    let plain = |command| Request::anonymous(command);
    group.bench_function("create", |b| {
        b.iter_custom(|times| {
            let mut store = empty(times);
            timed(
                &mut store,
                (0..times).map(|n| plain(create(&node(n), &Acl::open()))),
            )
        });
    });
    let acl = Acl::new(vec![AclEntry {
        perms: Perms::ALL,
        scheme: "digest".into(),
        id: "bob:hash".into(),
    }]);
    let bob = Identities::new([Identity::Digest("bob:hash".into())]);
    group.bench_function("create with a list of rights", |b| {
        b.iter_custom(|times| {
            let mut store = empty(times);
            let request = |n| Request {
                caller: bob.clone(),
                ..plain(create(&node(n), &acl))
            };
            timed(&mut store, (0..times).map(request))
        });
    });
    let mut store = full(NODES);
    group.bench_function("set", |b| {
        // A large odd step visits the znodes in no order that caches like.
        b.iter_custom(|times| {
            timed(
                &mut store,
                (0..times).map(|n| plain(set(&node(n * 7_919 % NODES)))),
            )
        });
    });
    group.bench_function("create and delete", |b| {
        let delete = Command::Write(Op::Delete {
            path: ZPath::parse("/bench/p0000/extra").unwrap(),
            version: -1,
        });
        let pair = [create("/bench/p0000/extra", &Acl::open()), delete];
        b.iter_custom(|times| {
            let pairs = (0..times).flat_map(|_| pair.clone()).map(plain);
            timed(&mut store, pairs)
        });
    });
    group.bench_function("multi of check and set", |b| {
        b.iter_custom(|times| {
            let multi = (0..times).map(|n| {
                let path = ZPath::parse(&node(n * 7_919 % NODES)).unwrap();
                let check = Op::Check {
                    path: path.clone(),
                    version: -1,
                };
                let set = Op::Set {
                    path,
                    data: vec![b'z'; DATA_BYTES].into(),
                    version: -1,
                };
                plain(Command::Multi(vec![check, set]))
            });
            timed(&mut store, multi)
        });
    });
    group.bench_function("acquire and release", |b| {
        b.iter_custom(|times| {
            let mut taken = Duration::ZERO;
            let mut events = Vec::new();
            for n in 0..times {
                let lock = LockName::parse(&format!("job-{}", n % 1_000)).unwrap();
                let acquire = LockCommand::Acquire {
                    wish: LockWish {
                        lock: lock.clone(),
                        mode: LockMode::Exclusive,
                        permits: 1,
                        owner: "".into(),
                        reentrant: true,
                        note: "".into(),
                        address: "127.0.0.1:50000".into(),
                        lock_delay_ms: 0,
                        names: Default::default(),
                    },
                    guid: n.into(),
                    attempt: AttemptId(n),
                    wait: true,
                };
                let ask = |command| Request {
                    session: Some(SESSION),
                    ..plain(Command::Lock(command))
                };
                let acquire = ask(acquire);
                events.clear();
                let begun = Instant::now();
                let Ok(Reply::Granted(grant)) = store.apply(&entry(), acquire, &mut events).outcome else {
                    panic!("the lock is free");
                };
                let release = ask(LockCommand::Release {
                    lock,
                    holder: grant.holder,
                });
                store.apply(&entry(), release, &mut events).outcome.unwrap();
                taken += begun.elapsed();
            }
            taken
        });
    });
    group.finish();
}

fn reads(c: &mut Criterion) {
    const NODES: u64 = 100_000;
    let store = full(NODES);
    let nobody = Identities::none();
    let view = store.seen_by(&nobody);
    let paths: Vec<_> = (0..NODES)
        .map(|n| ZPath::parse(&node(n * 7_919 % NODES)).unwrap())
        .collect();
    let mut next = paths.iter().cycle();
    let mut group = c.benchmark_group("read");
    group.throughput(Throughput::Elements(1));
    group.bench_function("get", |b| b.iter(|| view.get(next.next().unwrap()).unwrap()));
    group.bench_function("exists", |b| {
        b.iter(|| view.exists(next.next().unwrap()).unwrap())
    });
    let parent = ZPath::parse("/bench/p0000").unwrap();
    group.bench_function("children of 1,000", |b| {
        b.iter(|| view.children(&parent).unwrap())
    });
    for siblings in [1_000_u64, 4_000, 1_000_000] {
        let mut store = empty(1);
        for n in 0..siblings {
            apply(
                &mut store,
                create(
                    &format!("/bench/p0000/{:08x}", n.wrapping_mul(0x9e37_79b1) & 0xffff_ffff),
                    &Acl::open(),
                ),
            );
        }
        let view = store.seen_by(&nobody);
        group.bench_with_input(
            BenchmarkId::new("page of 100 children of", siblings),
            &siblings,
            |b, _| b.iter(|| view.children_page(&parent, "", Some("8"), 100).unwrap()),
        );
    }
    group.finish();
}

fn digests(c: &mut Criterion) {
    let store = full(10_000);
    c.bench_function("digest", |b| b.iter(|| store.digest()));
    let data = Data::from(vec![b'x'; DATA_BYTES]);
    c.bench_function("clone of data", |b| b.iter(|| data.clone()));
}

criterion_group!(benches, writes, reads, digests);
criterion_main!(benches);
