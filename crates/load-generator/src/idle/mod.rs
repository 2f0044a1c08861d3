//! `lockgate bench idle`: many sessions that do nothing but live, by ZooKeeper's protocol at any server that speaks it, with a
//! connection and pings each, or by HTTP with heartbeats over few connections. How fast they are opened; and then they stay, so that
//! it can be looked at what they cost.

mod gateway;

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use cli_support::ensure_usage;
use cli_support::open_files;
use cli_support::output::{say, tell};
use cli_support::progress::Progress;
use cli_support::signals;
use futures_util::FutureExt as _;
use nix::unistd::Pid;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, sleep, sleep_until};

use self::gateway::Sessions;
use super::load::Over;
use super::nodes::Nodes;
use super::report::{self, Durations, Percentiles, ms};
use super::zookeeper::session::Session;
use super::{Target, processes};

/// Sessions that are opened or closed at a time: enough to keep the servers busy, and less than what they refuse.
const AT_A_TIME: usize = 64;

/// Files beside the connections.
const OTHER_FILES: u64 = 256;

/// Of sessions without connections; with them it is what the servers grant of as much.
const TTL: Duration = Duration::from_secs(30);

/// How often it is looked how far this has come.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What `lockgate bench idle` is told.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    /// How they are kept: zookeeper, each by pings on a connection of its own; http, by heartbeats over few connections
    #[arg(long, value_enum, default_value = "zookeeper")]
    over: Over,
    /// How many
    #[arg(long, default_value_t = 10_000)]
    sessions: usize,
    /// For how long they are kept when all are open; an interruption ends it, too
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// All at the server with this number, counted from 1, in place of all servers by turns
    #[arg(long, value_name = "NUMBER")]
    at: Option<usize>,
    /// Addresses of this machine that connections come from, by turns: a server lets in only so many from one, and one has only so
    /// many ports [default: as the system likes]
    #[arg(long, value_delimiter = ',', value_name = "ADDRESSES")]
    from: Vec<IpAddr>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What it came to.
#[derive(Debug, Clone, Serialize)]
pub struct IdleReport {
    /// How many there were.
    pub sessions: usize,
    /// `zookeeper`: with a connection each; `http`: without.
    pub over: &'static str,
    /// At how many servers.
    pub servers: usize,
    /// From the first connection until the last one was open, in seconds.
    pub opening_seconds: f64,
    /// How many were opened in a second.
    pub opened_per_second: f64,
    /// How long each took, with its connection; `None` without connections.
    pub opening: Option<Percentiles>,
    /// For how long they were kept when all were open.
    pub held_seconds: f64,
    /// How many ended by themselves.
    pub lost: usize,
    /// Why the first of them did.
    pub first_loss: Option<String>,
    /// Of each node of a cluster on this machine: its memory before the first, in bytes.
    pub memory_before_bytes: Vec<u64>,
    /// The same when they had been kept.
    pub memory_bytes: Vec<u64>,
}

/// Measures, and prints what came out.
pub async fn run(args: Arguments) -> anyhow::Result<()> {
    ensure_usage!(args.sessions > 0, "at least one session is needed");
    let report = LocalSet::new().run_until(measure(&args)).await?;
    match args.json {
        true => report::print_json(&report)?,
        false => print(&report)?,
    }
    let why = report.first_loss.unwrap_or_default();
    ensure!(
        report.lost == 0,
        "{} of {} sessions were lost: {why}",
        report.lost,
        report.sessions
    );
    Ok(())
}

async fn measure(args: &Arguments) -> anyhow::Result<IdleReport> {
    let pids = args.target.processes()?;
    let memory = || pids.iter().map(|pid: &Pid| processes::memory(*pid)).collect();
    let at = |nodes: Nodes| match args.at {
        Some(number) => nodes.only(number),
        None => Ok(nodes),
    };
    let memory_before_bytes = memory()?;
    let mut report = match args.over {
        Over::Zookeeper => {
            open_files::raise(args.sessions as u64 + OTHER_FILES)?;
            let nodes = at(args.target.zookeeper_nodes()?)?.called_from(args.from.clone());
            with_connections(args, &nodes, memory).await?
        }
        Over::Http => {
            ensure_usage!(args.from.is_empty(), "--from is for --over zookeeper");
            without_connections(args, at(args.target.nodes()?)?, memory).await?
        }
    };
    report.memory_before_bytes = memory_before_bytes;
    Ok(report)
}

/// What all who keep a session share.
struct Kept {
    wanted: Cell<usize>,
    opened: Cell<usize>,
    opening: RefCell<Durations>,
    lost: Cell<usize>,
    first_loss: RefCell<Option<String>>,
    /// Whoever has a place closes its session. There are none before the end.
    closing: Semaphore,
}

impl Kept {
    fn none(of: usize) -> Rc<Self> {
        Rc::new(Self {
            wanted: Cell::new(of),
            opened: Cell::new(0),
            opening: RefCell::default(),
            lost: Cell::new(0),
            first_loss: RefCell::default(),
            closing: Semaphore::const_new(0),
        })
    }

    fn lose(&self, why: &anyhow::Error) {
        self.lost.set(self.lost.get() + 1);
        let mut first = self.first_loss.borrow_mut();
        first.get_or_insert_with(|| format!("{why:#}"));
    }

    /// Pings until it is this one's turn to end, or it has ended by itself.
    async fn keep(self: Rc<Self>, mut session: Session) -> anyhow::Result<()> {
        let _place = tokio::select! {
            biased;
            place = self.closing.acquire() => place.context("nobody closes the queue for the end")?,
            why = session.idle() => {
                self.lose(&why);
                return Ok(());
            }
        };
        session.close().await
    }
}

async fn with_connections(
    args: &Arguments,
    nodes: &Nodes,
    memory: impl Fn() -> anyhow::Result<Vec<u64>>,
) -> anyhow::Result<IdleReport> {
    let kept = Kept::none(args.sessions);
    let mut keepers = JoinSet::new();
    let begin = Instant::now();
    let opened = interruptible(open(args, nodes, &kept, &mut keepers)).await;
    let took = begin.elapsed();
    let held = match opened {
        Ok(()) => hold(args, || Ok(kept.lost.get())).await,
        Err(error) => Err(error),
    };
    let memory_bytes = memory()?;
    // Also those of an opening that has failed: they would live on for a whole timeout.
    kept.closing.add_permits(AT_A_TIME);
    while let Some(ended) = keepers.join_next().await {
        if let Err(error) = ended.context("keeping a session")? {
            kept.lose(&error.context("at its end"));
        }
    }
    let held = held?;
    let opening = kept.opening.borrow().percentiles();
    Ok(IdleReport {
        lost: kept.lost.get(),
        first_loss: kept.first_loss.take(),
        opening: Some(opening),
        memory_bytes,
        ..report_of(args, "zookeeper", nodes, took, held)
    })
}

/// Opens them all; each is kept from then on.
async fn open(
    args: &Arguments,
    nodes: &Nodes,
    kept: &Rc<Kept>,
    keepers: &mut JoinSet<anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let (sender, mut arrivals) = tokio::sync::mpsc::channel(AT_A_TIME);
    let mut openers = JoinSet::new();
    for _ in 0..AT_A_TIME.min(args.sessions) {
        let (nodes, kept, sender) = (nodes.clone(), kept.clone(), sender.clone());
        openers.spawn_local(
            async move {
                while let Some(left) = kept.wanted.get().checked_sub(1) {
                    kept.wanted.set(left);
                    let begin = Instant::now();
                    let session = Session::open(&nodes, left).await?;
                    kept.opening.borrow_mut().record(begin.elapsed());
                    kept.opened.set(kept.opened.get() + 1);
                    // Nobody takes it any more: all this is ending.
                    if sender.send(session).await.is_err() {
                        return Ok(());
                    }
                }
                anyhow::Ok(())
            }
            .boxed_local(),
        );
    }
    drop(sender);
    let mut progress = Progress::counting("opened", "sessions");
    // Each is kept at once: the opening of the others may take longer than a session lives.
    while let Some(session) = arrivals.recv().await {
        keepers.spawn_local(kept.clone().keep(session).boxed_local());
        progress.at(kept.opened.get() as u64, args.sessions as u64);
        // One that is refused has its reason, and the others will have the same.
        while let Some(ended) = openers.try_join_next() {
            ended.context("opening sessions")??;
        }
    }
    while let Some(ended) = openers.join_next().await {
        ended.context("opening sessions")??;
    }
    Ok(())
}

async fn without_connections(
    args: &Arguments,
    nodes: Nodes,
    memory: impl Fn() -> anyhow::Result<Vec<u64>>,
) -> anyhow::Result<IdleReport> {
    let mut sessions = Sessions::new(nodes.clone(), TTL, AT_A_TIME.min(args.sessions));
    let mut progress = Progress::counting("opened", "sessions");
    let mut told = |so_many: usize| progress.at(so_many as u64, args.sessions as u64);
    let begin = Instant::now();
    let opened = interruptible(sessions.grow_to(args.sessions, &mut told)).await;
    let took = begin.elapsed();
    drop(progress);
    let held = match opened {
        Ok(()) => hold(args, || sessions.look().map(|_| 0)).await,
        Err(error) => Err(error),
    };
    let memory_bytes = memory()?;
    sessions.close().await?;
    Ok(IdleReport {
        memory_bytes,
        ..report_of(args, "http", &nodes, took, held?)
    })
}

fn report_of(
    args: &Arguments,
    over: &'static str,
    nodes: &Nodes,
    took: Duration,
    held: Duration,
) -> IdleReport {
    IdleReport {
        sessions: args.sessions,
        over,
        servers: nodes.count(),
        opening_seconds: took.as_secs_f64(),
        opened_per_second: args.sessions as f64 / took.as_secs_f64(),
        opening: None,
        held_seconds: held.as_secs_f64(),
        lost: 0,
        first_loss: None,
        memory_before_bytes: Vec::new(),
        memory_bytes: Vec::new(),
    }
}

async fn interruptible(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::select! {
        done = work => done,
        interrupted = signals::interrupted() => {
            interrupted?;
            bail!("interrupted")
        }
    }
}

/// Lets them live for so long, or until this is interrupted, or one is lost. Says how long that was.
async fn hold(args: &Arguments, mut lost: impl FnMut() -> anyhow::Result<usize>) -> anyhow::Result<Duration> {
    let begin = Instant::now();
    let end = begin + Duration::from_secs(args.seconds);
    let watched = async {
        while lost()? == 0 {
            sleep(LOOK_EVERY).await;
        }
        anyhow::Ok(())
    };
    // Whoever looks at the servers has to know from when on all are there.
    tell(format!("{} sessions are open", args.sessions));
    tokio::select! {
        () = sleep_until(end) => {}
        ended = watched => ended?,
        interrupted = signals::interrupted() => interrupted?,
    }
    Ok(begin.elapsed())
}

fn print(report: &IdleReport) -> anyhow::Result<()> {
    say(format!(
        "{} sessions at {} servers over {}: opened in {:.1} s, {:.0}/s; kept for {:.1} s, {} lost",
        report.sessions,
        report.servers,
        report.over,
        report.opening_seconds,
        report.opened_per_second,
        report.held_seconds,
        report.lost
    ))?;
    if let Some(opening) = &report.opening {
        say(format!(
            "each was opened in {} ms (p50), {} ms (p99), {} ms (longest)",
            ms(opening.p50_us),
            ms(opening.p99_us),
            ms(opening.max_us)
        ))?;
    }
    let nodes = report.memory_before_bytes.iter().zip(&report.memory_bytes);
    for (number, (before, after)) in nodes.enumerate() {
        say(format!(
            "node {}: {:.1} MiB before, {:.1} MiB with them: {:.0} bytes for each",
            number + 1,
            *before as f64 / 1_048_576.0,
            *after as f64 / 1_048_576.0,
            after.saturating_sub(*before) as f64 / report.sessions as f64
        ))?;
    }
    Ok(())
}
