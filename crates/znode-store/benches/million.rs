//! Benchmark of a million znodes of 100 bytes in parents of 1,000: their memory, the duration of a snapshot and a restore, and the longest
//! delay of a command by a snapshot.
//!
//! `cargo bench -p znode-store --bench million`, on Linux, whose kernel reports the resident memory. Not a benchmark of criterion's kind:
//! each figure is of one run, and a maximum includes the scheduler's delays on a busy machine.
#![allow(
    clippy::unwrap_used,
    reason = "a benchmark that cannot go on has nothing to say"
)]

use std::time::{Duration, Instant};

use znode_store::{
    Acl, Command, CreateMode, CreatePath, EntryContext, Event, Limits, Op, Password, Request, Restorer,
    SessionId, SnapshotPart, Store, ZPath,
};

const NODES: u64 = 1_000_000;
const SIBLINGS: u64 = 1_000;
const DATA_BYTES: usize = 100;

/// Znodes drawn in one go, as a node of the cluster does; see the snapshot builder of `raft-node`.
const PART: usize = 512;

/// Commands in one entry of the log while a snapshot is drawn.
const ENTRY: u64 = 64;

fn main() {
    let before = resident_bytes();
    let begun = Instant::now();
    let mut store = full();
    let created = begun.elapsed();
    let bytes = resident_bytes() - before;
    println!("{} znodes", store.node_count());
    println!("  created in {created:.2?}, requests included");
    println!(
        "  resident: {:.1} bytes a znode",
        bytes as f64 / store.node_count() as f64
    );

    // Nobody writes.
    let begun = Instant::now();
    store.begin_snapshot();
    let first = begun.elapsed();
    let (mut parts, mut longest) = (Vec::new(), first);
    loop {
        let part_begun = Instant::now();
        let Some(part) = store.next_snapshot_part(PART) else {
            break;
        };
        longest = longest.max(part_begun.elapsed());
        parts.push(part);
    }
    println!("snapshot of an idle store");
    println!("  drawn in {:.2?}, longest part {longest:.2?}", begun.elapsed());

    let begun = Instant::now();
    let bytes: Vec<Vec<u8>> = parts.iter().map(encode).collect();
    println!(
        "  encoded in {:.2?}, {:.1} MB",
        begun.elapsed(),
        bytes.iter().map(Vec::len).sum::<usize>() as f64 / 1e6
    );
    drop(parts);
    let begun = Instant::now();
    let mut restorer = Restorer::new();
    for part in &bytes {
        restorer.add(decode(part)).unwrap();
    }
    let restored = restorer.finish().unwrap();
    println!("  decoded and restored in {:.2?}", begun.elapsed());
    assert_eq!(restored.digest(), store.digest());
    drop(restored);

    // Somebody changes znodes all over the tree as fast as one core can, an entry after each part.
    let begun = Instant::now();
    store.begin_snapshot();
    let (mut gap, mut applying) = (begun.elapsed(), Duration::ZERO);
    let (mut applied, mut slowest_entry) = (0, Duration::ZERO);
    loop {
        let part_begun = Instant::now();
        let part = store.next_snapshot_part(PART);
        gap = gap.max(part_begun.elapsed());
        let Some(part) = part else { break };
        drop(part);
        let requests: Vec<_> = (0..ENTRY).map(|n| change(applied + n)).collect();
        let mut events: Vec<Event> = Vec::new();
        let entry_begun = Instant::now();
        for request in requests {
            store.apply(&entry(), request, &mut events).outcome.unwrap();
        }
        slowest_entry = slowest_entry.max(entry_begun.elapsed());
        applying += entry_begun.elapsed();
        applied += ENTRY;
    }
    println!("snapshot of a busy store");
    println!("  {applied} commands meanwhile, {applying:.2?} of them");
    println!(
        "  longest gap between two entries {gap:.2?}, slowest entry of {ENTRY} commands {slowest_entry:.2?}"
    );
    close_a_large_session(&mut store);
}

/// Closes a session with the default maximum of ephemeral znodes, all in one command.
fn close_a_large_session(store: &mut Store) {
    let session = SessionId(1);
    let open = Command::OpenSession {
        session,
        password: Password([0; 16]),
        timeout_ms: 10_000,
        name: "".into(),
        address: "".into(),
    };
    let mut events = Vec::new();
    let mut ask = |request| {
        events.clear();
        store.apply(&entry(), request, &mut events).outcome.unwrap();
    };
    ask(Request::anonymous(open));
    let ephemerals = Limits::default().ephemerals;
    for n in 0..ephemerals {
        let mut request = create(&format!("/ephemerals/p{:03}/node-{n:010}", n / 1_000));
        if let Command::Write(Op::Create { mode, .. }) = &mut request.command {
            *mode = CreateMode::Ephemeral;
        }
        request.session = Some(session);
        ask(request);
    }
    let begun = Instant::now();
    ask(Request::anonymous(Command::CloseSession { session }));
    println!("session with {ephemerals} ephemeral znodes");
    println!("  closed in {:.2?}", begun.elapsed());
}

fn entry() -> EntryContext {
    EntryContext {
        time_ms: 1_700_000_000_000,
        term: 1,
    }
}

fn node(n: u64) -> String {
    format!("/bench/p{:04}/node-{n:010}", n / SIBLINGS)
}

fn create(path: &str) -> Request {
    Request::anonymous(Command::Write(Op::Create {
        path: CreatePath::parse(path, false).unwrap(),
        data: vec![b'x'; DATA_BYTES].into(),
        acl: Acl::open(),
        mode: CreateMode::Persistent,
        parents: true,
    }))
}

fn full() -> Store {
    let mut store = Store::new();
    let mut events = Vec::new();
    for n in 0..NODES {
        events.clear();
        store
            .apply(&entry(), create(&node(n)), &mut events)
            .outcome
            .unwrap();
    }
    store
}

/// A large odd step visits all znodes in no order.
fn change(n: u64) -> Request {
    let at = n * 7_368_787 % NODES;
    match n % 4 {
        0 => create(&format!("{}-new-{n}", node(at))),
        _ => Request::anonymous(Command::Write(Op::Set {
            path: ZPath::parse(&node(at)).unwrap(),
            data: vec![b'y'; DATA_BYTES].into(),
            version: -1,
        })),
    }
}

fn encode(part: &SnapshotPart) -> Vec<u8> {
    bincode::serde::encode_to_vec(part, bincode::config::standard()).unwrap()
}

fn decode(bytes: &[u8]) -> SnapshotPart {
    bincode::serde::borrow_decode_from_slice(bytes, bincode::config::standard())
        .unwrap()
        .0
}

/// Memory of this process that is in use, as the kernel counts it.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kilobytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes * 1024
}
