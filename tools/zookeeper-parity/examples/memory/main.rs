//! Memory use of a million znodes of 100 bytes in parents of 1,000: in ZooKeeper's process, and in
//! Lockgate's.
//!
//! `cargo run --release -p zookeeper-parity --example memory`. Needs Linux, a ZooKeeper, and `jcmd` of its
//! Java.

mod resident;

use anyhow::{Result, bail, ensure};
use resident::{live_heap_bytes, resident_bytes};
use znode_store::{Acl, Command, CreateMode, CreatePath, EntryContext, Op, Store};
use zookeeper_parity::server::{Installation, Server};
use zookeeper_parity::wire::{AclEntry, ConnectOutcome, Connection, CreateCall, Reaction, Request};

const NODES: u64 = 1_000_000;
const SIBLINGS: u64 = 1_000;
const DATA_BYTES: usize = 100;

/// Heap size, large enough that the collector is never short of space.
const HEAP_MEGABYTES: u32 = 4_096;

fn main() -> Result<()> {
    let before = resident_bytes("self")?;
    let store = ours()?;
    let ours = resident_bytes("self")? - before;
    println!(
        "Lockgate's state machine: {:.1} bytes a znode, resident",
        per_node(ours)
    );
    drop(store);

    let Some(installation) = Installation::find() else {
        println!("no ZooKeeper is installed for a comparison");
        return Ok(());
    };
    let server = Server::start_with_heap(&installation, HEAP_MEGABYTES)?;
    let process = server.process_id();
    let (live_before, resident_before) = (live_heap_bytes(process)?, resident_bytes(&process.to_string())?);
    load(&server)?;
    let resident = resident_bytes(&process.to_string())? - resident_before;
    let live = live_heap_bytes(process)? - live_before;
    let collected = resident_bytes(&process.to_string())?.saturating_sub(resident_before);
    println!("ZooKeeper {}:", server.version());
    println!("  {:.1} bytes a znode, live on the heap", per_node(live));
    println!(
        "  {:.1} bytes a znode, resident after a full collection",
        per_node(collected)
    );
    println!("  {:.1} bytes a znode, resident before it", per_node(resident));
    Ok(())
}

fn per_node(bytes: u64) -> f64 {
    bytes as f64 / (NODES + NODES / SIBLINGS) as f64
}

fn parent(n: u64) -> String {
    format!("/p{:04}", n / SIBLINGS)
}

fn node(n: u64) -> String {
    format!("{}/node-{n:010}", parent(n))
}

fn ours() -> Result<Store> {
    let entry = EntryContext {
        time_ms: 1_700_000_000_000,
        term: 1,
    };
    let (mut store, mut events) = (Store::new(), Vec::new());
    for n in 0..NODES {
        events.clear();
        let create = Op::Create {
            path: CreatePath::parse(&node(n), false)?,
            data: vec![b'x'; DATA_BYTES].into(),
            acl: Acl::open(),
            mode: CreateMode::Persistent,
            parents: true,
        };
        let request = znode_store::Request::anonymous(Command::Write(create));
        store.apply(&entry, request, &mut events).outcome?;
    }
    Ok(store)
}

fn load(server: &Server) -> Result<()> {
    let ConnectOutcome::Accepted(mut connection, _) = Connection::open(server.address(), None, 0)? else {
        bail!("the server rejected a new session");
    };
    let create = |path, data| Request::Create {
        call: CreateCall::Create,
        path,
        data,
        acl: Some(vec![AclEntry {
            perms: 31,
            scheme: "world".into(),
            id: "anyone".into(),
        }]),
        flags: 0,
    };
    for first in (0..NODES).step_by(SIBLINGS as usize) {
        let children =
            (first..first + SIBLINGS).map(|n| create(node(n), Some(vec![b'x'; DATA_BYTES].into())));
        let all = std::iter::once(create(parent(first), None)).chain(children);
        let answer = connection.call(&Request::Multi(all.collect()))?;
        ensure!(
            matches!(answer.reaction, Reaction::Reply { .. }),
            "the server did not create {}: {answer:?}",
            parent(first)
        );
    }
    Ok(())
}
