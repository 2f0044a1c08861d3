//! Loads without any connection: three nodes within this program, as the library embeds them, and clients that call them. What is
//! measured is all that a lock costs but for a client's way to a node.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use raft_node::{MemberAddress, Node, NodeId};
use tokio::task::LocalSet;
use tokio::time::Instant;
use znode_store::{
    Acl, Command, CreateMode, CreatePath, HolderId, LockMode, LockName, LockWish, Op, Request, ZPath,
};

use super::drive::{Client, Moments};
use super::load::{self, Pace, Plan};
use super::nodes::Nodes;
use super::report::{LoadReport, Subject};
use super::workload::{Mix, Workload};
use crate::api_client::request_id;
use crate::cluster::layout::free_ports;
use crate::{AcquireOptions, LocalLockError, LocalSession, Lockgate};

/// As many as a cluster of `lockgate cluster up` has.
const NODES: u64 = 3;

/// A cluster that has just been started has no leader for a moment.
const LEADER_WITHIN: Duration = Duration::from_secs(30);

/// How often it is looked whether it has one.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Measures on nodes of its own, whose files are in the current directory while it lasts.
pub(super) async fn run(workload: Workload, pace: &Pace) -> anyhow::Result<Vec<LoadReport>> {
    let dir = PathBuf::from(format!("lockgate-bench-{}", request_id()));
    // The nodes have threads of their own, as they would beside a program's other work.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("starting the nodes' runtime")?;
    let measured = tokio::select! {
        measured = on_nodes(&runtime, &dir, workload, pace) => measured,
        interrupted = tokio::signal::ctrl_c() => interrupted
            .context("listening for SIGINT")
            .and_then(|()| Err(anyhow::anyhow!("interrupted"))),
    };
    runtime.shutdown_background();
    match std::fs::remove_dir_all(&dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", dir.display()))
        }
        _ => measured,
    }
}

async fn on_nodes(
    runtime: &tokio::runtime::Runtime,
    dir: &Path,
    workload: Workload,
    pace: &Pace,
) -> anyhow::Result<Vec<LoadReport>> {
    let servers = runtime
        .spawn(start(dir.to_owned()))
        .await
        .context("the nodes")??;
    let mut reports = Vec::new();
    let mut failed = None;
    for &clients in &pace.clients {
        match LocalSet::new()
            .run_until(one(&servers, workload, clients, pace))
            .await
        {
            Ok(report) => {
                load::tell(pace, &report, reports.is_empty())?;
                reports.push(report);
            }
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    runtime
        .spawn(async move {
            for server in servers {
                server.stop().await;
            }
        })
        .await
        .context("stopping the nodes")?;
    failed.map_or(Ok(reports), Err)
}

async fn start(dir: PathBuf) -> anyhow::Result<Vec<Lockgate>> {
    // Nobody calls them by HTTP, but a member has an address for it.
    let ports = free_ports(2 * NODES as usize)?;
    let address = |port: u16| format!("127.0.0.1:{port}");
    let member = |pair: &[u16]| MemberAddress {
        peer: address(pair[0]),
        http: address(pair[1]),
    };
    let members: BTreeMap<NodeId, _> = (1..).zip(ports.chunks_exact(2).map(member)).collect();
    let mut servers = Vec::new();
    for id in 1..=NODES {
        let started = Lockgate::builder()
            .node_id(id)
            .cluster("bench")
            .members(members.clone())
            .data_dir(dir.join(id.to_string()))
            .without_http()
            .start()
            .await;
        servers.push(started.with_context(|| format!("starting node {id}"))?);
    }
    let deadline = Instant::now() + LEADER_WITHIN;
    loop {
        match servers[0].open_session("lockgate bench").await {
            Ok(session) => {
                session.close().await?;
                return Ok(servers);
            }
            Err(LocalLockError::Unavailable(_)) if Instant::now() < deadline => {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            Err(error) => return Err(error).context("waiting for a leader"),
        }
    }
}

async fn one(
    servers: &[Lockgate],
    workload: Workload,
    clients: usize,
    pace: &Pace,
) -> anyhow::Result<LoadReport> {
    let run = request_id();
    let data = Bytes::from(vec![b'x'; pace.data_bytes]);
    let node = servers[0].node();
    propose(node, create(format!("/{run}"), Bytes::new())?).await?;
    let mut callers = Vec::with_capacity(clients);
    for number in 0..clients {
        let server = &servers[number % servers.len()];
        let path = format!("/{run}/{number}");
        propose(server.node(), create(path.clone(), data.clone())?).await?;
        let session = server.open_session("lockgate bench").await?;
        let what = What::new(workload, &run, number, &path, &data)?;
        callers.push(Caller {
            node: server.node().clone(),
            locks: server.locks().clone(),
            session,
            what,
        });
    }
    // The addresses are not called.
    let nodes = Nodes::from(vec!["in this program".to_owned()]);
    let plan = Plan::of(pace, nodes, Vec::new());
    let drive = plan.drive(workload, clients);
    let driven = drive.run(callers).await?;
    let path = ZPath::parse(&format!("/{run}"))?;
    propose(node, Op::DeleteRecursive { path }).await?;
    let subject = Subject {
        workload: workload.name(),
        over: "process",
        nodes: servers.len(),
        clients,
    };
    let report = LoadReport::new(&subject, &drive, &driven);
    Ok(LoadReport {
        // It is one program: what the clients take cannot be told from what the nodes take.
        nodes_cpu_us: report.client_cpu_us,
        client_cpu_us: None,
        ..report
    })
}

/// A client with its session at one of the nodes.
struct Caller {
    node: Node,
    locks: lock_api::locks::Locks,
    session: LocalSession,
    what: What,
}

/// What it does over and over.
enum What {
    Lock { name: String, options: AcquireOptions },
    Multi(Vec<LockName>),
    Create { home: String, data: Bytes, number: u64 },
    Set(Op),
    Get(ZPath),
    Mixed { get: ZPath, set: Op, mix: Mix },
}

impl What {
    fn new(workload: Workload, run: &str, number: usize, path: &str, data: &Bytes) -> anyhow::Result<Self> {
        let own = format!("bench/{run}/{number}");
        let all = format!("bench/{run}/all");
        let lock = |name, options| What::Lock { name, options };
        let set = || {
            anyhow::Ok(Op::Set {
                path: ZPath::parse(path)?,
                data: data.to_vec().into(),
                version: -1,
            })
        };
        Ok(match workload {
            Workload::Lock => lock(own, AcquireOptions::exclusive()),
            Workload::Contended => lock(all, AcquireOptions::exclusive()),
            Workload::Shared => lock(all, AcquireOptions::shared()),
            Workload::Semaphore { permits } => lock(all, AcquireOptions::semaphore(permits)),
            Workload::Multi { locks } => {
                let names = (0..locks).map(|lock| LockName::parse(&format!("{own}/{lock}")));
                What::Multi(names.collect::<Result<_, _>>()?)
            }
            Workload::Create => What::Create {
                home: path.to_owned(),
                data: data.clone(),
                number: 0,
            },
            Workload::Set => What::Set(set()?),
            Workload::Get => What::Get(ZPath::parse(path)?),
            Workload::Mixed { reads } => What::Mixed {
                get: ZPath::parse(path)?,
                set: set()?,
                mix: Mix::new(reads, number),
            },
            Workload::Sequential => bail!("it is there over ZooKeeper's protocol only"),
        })
    }
}

impl Client for Caller {
    async fn once(&mut self, moments: &mut Moments) -> anyhow::Result<()> {
        match &mut self.what {
            What::Lock { name, options } => {
                let held = self.session.acquire(name, options.clone()).await?;
                moments.granted();
                moments.releasing();
                held.release().await?;
            }
            What::Multi(names) => {
                let wishes = names.iter().cloned().map(wish).collect();
                let (session, forever) = (self.session.id(), lock_api::locks::WaitFor::Forever);
                let granted = self.locks.acquire_many(session, wishes, forever, None, 0).await?;
                moments.granted();
                let holders: Vec<(LockName, HolderId)> = granted
                    .into_iter()
                    .map(|grant| (grant.lock, grant.holder))
                    .collect();
                self.locks.release_many(session, holders, None).await?;
            }
            What::Create { home, data, number } => {
                *number += 1;
                let op = create(format!("{home}/n{number:010}"), data.clone())?;
                propose(&self.node, op).await?;
            }
            What::Set(op) => propose(&self.node, op.clone()).await?,
            What::Get(path) => read(&self.node, path)?,
            What::Mixed { get, set, mix } => match mix.next_reads() {
                true => read(&self.node, get)?,
                false => propose(&self.node, set.clone()).await?,
            },
        }
        // A read here waits for nobody, and the others are to have their turn.
        tokio::task::consume_budget().await;
        Ok(())
    }

    async fn close(self) -> anyhow::Result<()> {
        self.session.close().await.context("closing a session")
    }
}

fn wish(lock: LockName) -> LockWish {
    LockWish {
        lock,
        mode: LockMode::Exclusive,
        permits: 1,
        owner: "".into(),
        reentrant: false,
        note: "".into(),
        address: "in process".into(),
        lock_delay_ms: 0,
        names: Default::default(),
    }
}

fn create(path: String, data: Bytes) -> anyhow::Result<Op> {
    Ok(Op::Create {
        path: CreatePath::parse(&path, false)?,
        data: data.to_vec().into(),
        acl: Acl::open(),
        mode: CreateMode::Persistent,
        parents: false,
    })
}

async fn propose(node: &Node, op: Op) -> anyhow::Result<()> {
    let applied = node.propose(Request::anonymous(Command::Write(op))).await?;
    applied.outcome?;
    Ok(())
}

fn read(node: &Node, path: &ZPath) -> anyhow::Result<()> {
    let found = node.read(|store| store.get(path));
    found.map(drop).context("the client's znode is gone")
}
