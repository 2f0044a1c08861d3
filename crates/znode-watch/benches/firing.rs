//! Benchmark of the time that watches add to a change, and of their memory: `cargo bench -p
//! znode-watch --bench firing`.
//!
//! The events are as a store produces them; the notices are dropped. On Linux the kernel reports
//! the resident memory.
#![allow(
    missing_docs,
    reason = "criterion's macros generate public functions without documentation"
)]
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use znode_store::{Acl, Identities, ZPath, ZnodeEvent, ZnodeEventKind, Zxid};
use znode_watch::{WatchKind, WatchLimits, WatcherId, Watches};

/// Watches on other paths than the event's.
const OTHER_WATCHES: u64 = 1_000_000;

/// Watchers of one path, as when thousands of clients wait for one change.
const WATCHERS: u64 = 10_000;

fn path(n: u64) -> ZPath {
    ZPath::parse(&format!("/bench/p{:04}/node-{n:010}", n / 1_000)).unwrap()
}

fn event(kind: ZnodeEventKind, path: &ZPath) -> ZnodeEvent {
    ZnodeEvent {
        kind,
        path: path.clone(),
        acl: Acl::open(),
    }
}

fn watches() -> Watches {
    let limits = WatchLimits {
        per_watcher: u32::MAX,
        per_node: u32::MAX,
    };
    Watches::new(limits, 0x5eed)
}

/// A hundred watchers, each with a data watch on every hundredth of a million paths.
fn million_watches() -> (Watches, Vec<WatcherId>) {
    let mut watches = watches();
    let watchers: Vec<_> = (0..100).map(|_| watches.connect(Identities::none())).collect();
    for n in 0..OTHER_WATCHES {
        let watcher = watchers[(n % 100) as usize];
        watches.arm(watcher, WatchKind::Data, &path(n)).unwrap();
    }
    (watches, watchers)
}

fn fire(watches: &mut Watches, event: &ZnodeEvent) {
    watches.fire(
        Zxid(1),
        event,
        znode_store::Visibility::open(),
        |watcher, notice| {
            black_box((watcher, notice));
        },
    );
}

fn firing(c: &mut Criterion) {
    let mut group = c.benchmark_group("fire");
    let (here, elsewhere) = (path(7), path(OTHER_WATCHES + 7));
    let changed = event(ZnodeEventKind::DataChanged, &here);
    let unwatched = event(ZnodeEventKind::DataChanged, &elsewhere);

    group.bench_function("there are no watches", |b| {
        let mut watches = watches();
        b.iter(|| fire(&mut watches, &changed));
    });
    let (mut watches, watchers) = million_watches();
    group.bench_function("a million watches on other paths", |b| {
        b.iter(|| fire(&mut watches, &unwatched));
    });
    group.bench_function("one of a million one-shot watches, armed again", |b| {
        b.iter(|| {
            watches.arm(watchers[7], WatchKind::Data, &here).unwrap();
            fire(&mut watches, &changed);
        });
    });
    let root = watches.connect(Identities::none());
    watches
        .arm(root, WatchKind::PersistentRecursive, &ZPath::root())
        .unwrap();
    group.bench_function("a recursive watch on the root", |b| {
        b.iter(|| fire(&mut watches, &unwatched));
    });
    group.finish();
}

fn many_watchers(c: &mut Criterion) {
    let mut group = c.benchmark_group("many_watchers");
    group.throughput(Throughput::Elements(WATCHERS));
    let here = path(7);
    let changed = event(ZnodeEventKind::DataChanged, &here);
    group.bench_function("ten thousand watchers of one path, one-shot", |b| {
        let mut watches = watches();
        let watchers: Vec<_> = (0..WATCHERS)
            .map(|_| watches.connect(Identities::none()))
            .collect();
        let watches = std::cell::RefCell::new(watches);
        let arm = || {
            for &watcher in &watchers {
                watches.borrow_mut().arm(watcher, WatchKind::Data, &here).unwrap();
            }
        };
        b.iter_batched(
            arm,
            |()| fire(&mut watches.borrow_mut(), &changed),
            BatchSize::PerIteration,
        );
    });
    group.bench_function("ten thousand watchers of one path, persistent", |b| {
        let mut watches = watches();
        for _ in 0..WATCHERS {
            let watcher = watches.connect(Identities::none());
            watches.arm(watcher, WatchKind::Persistent, &here).unwrap();
        }
        b.iter(|| fire(&mut watches, &changed));
    });
    group.finish();
}

fn memory(_: &mut Criterion) {
    let Some(before) = resident_bytes() else { return };
    let paths: Vec<_> = (0..OTHER_WATCHES).map(path).collect();
    let with_paths = resident_bytes().unwrap_or(before);
    let mut watches = watches();
    let watcher = watches.connect(Identities::none());
    for path in &paths {
        watches.arm(watcher, WatchKind::Data, path).unwrap();
    }
    let distinct = resident_bytes().unwrap_or(before);
    let other = watches.connect(Identities::none());
    for path in &paths {
        watches.arm(other, WatchKind::Data, path).unwrap();
    }
    let shared = resident_bytes().unwrap_or(before);
    let each = |from: u64, to: u64| to.saturating_sub(from) as f64 / OTHER_WATCHES as f64;
    println!("memory of a million watches of one watcher, each on a path of its own");
    println!("  {:.1} bytes a path, for its text", each(before, with_paths));
    println!(
        "  {:.1} bytes a watch, with the entry of its path",
        each(with_paths, distinct)
    );
    println!(
        "  {:.1} bytes a watch of another watcher on the same paths",
        each(distinct, shared)
    );
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

// Memory first: it would otherwise reuse what the other benchmarks have freed.
criterion_group!(benches, memory, firing, many_watchers);
criterion_main!(benches);
