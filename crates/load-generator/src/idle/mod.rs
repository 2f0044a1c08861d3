//! `lockgate bench idle`: many idle sessions. Over ZooKeeper's protocol, at any server that supports it, each
//! has a connection and pings; over HTTP, few connections send all heartbeats. It measures how fast sessions
//! are opened, and then holds them, so that their cost can be observed.

mod gateway;

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use cli_support::durations;
use cli_support::ensure_usage;
use cli_support::format::Output;
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
use super::report::{Durations, Percentiles, ms};
use super::zookeeper::session::Session;
use super::{Target, processes};

/// Number of sessions that are opened or closed in parallel: enough to keep the servers busy, and fewer than
/// they reject.
const AT_A_TIME: usize = 64;

/// Open files beside the connections.
const OTHER_FILES: u64 = 256;

/// TTL of sessions over HTTP; over ZooKeeper's protocol the servers grant about as much.
const TTL: Duration = Duration::from_secs(30);

/// Poll interval for lost sessions.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Options of `lockgate bench idle`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    /// Protocol of the sessions: zookeeper, with a connection and pings each; http, with heartbeats over few
    /// connections
    #[arg(long, value_enum, default_value = "zookeeper")]
    over: Over,
    /// Number of sessions
    #[arg(long, default_value_t = 10_000)]
    sessions: usize,
    /// Number of locks that each session holds, over http
    #[arg(long, default_value_t = 0)]
    locks: usize,
    /// Time to hold them when all are open; an interrupt ends it earlier
    #[arg(long, value_name = "TIME", alias = "seconds", default_value = "30s", value_parser = durations::seconds_or_zero)]
    duration: Duration,
    /// Open all at the server with this number, counted from 1, instead of spreading them over all servers
    #[arg(long, value_name = "NUMBER")]
    at: Option<usize>,
    /// Addresses of this machine to connect from, in turn: a server limits the connections per address, and
    /// an address has a limited number of ports [default: chosen by the system]
    #[arg(long, value_delimiter = ',', value_name = "ADDRESSES")]
    from: Vec<IpAddr>,
    /// Format of the result
    #[command(flatten)]
    output: Output,
}

/// Result of the measurement.
#[derive(Debug, Clone, Serialize)]
pub struct IdleReport {
    /// Number of sessions.
    pub sessions: usize,
    /// Number of locks that each session held.
    pub locks: usize,
    /// `zookeeper`: with a connection each; `http`: without.
    pub over: &'static str,
    /// Number of servers.
    pub servers: usize,
    /// Time from the first connection until all sessions were open and held their locks, in seconds.
    pub opening_seconds: f64,
    /// Opened sessions per second.
    pub opened_per_second: f64,
    /// Durations of opening a session with its connection; `None` without connections.
    pub opening: Option<Percentiles>,
    /// Time for which all sessions were held, in seconds.
    pub held_seconds: f64,
    /// Number of sessions that were lost.
    pub lost: usize,
    /// Reason of the first loss.
    pub first_loss: Option<String>,
    /// Memory of each node of a local cluster before the first session, in bytes.
    pub memory_before_bytes: Vec<u64>,
    /// Memory of each node at the end of the hold, in bytes.
    pub memory_bytes: Vec<u64>,
}

/// Measures and prints the result.
pub async fn run(args: Arguments) -> anyhow::Result<()> {
    ensure_usage!(args.sessions > 0, "at least one session is needed");
    let report = LocalSet::new().run_until(measure(&args)).await?;
    match args.output.is_document() {
        true => args.output.say(&report, String::new)?,
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
            ensure_usage!(args.locks == 0, "--locks requires --over http");
            open_files::raise(args.sessions as u64 + OTHER_FILES)?;
            let nodes = at(args.target.zookeeper_nodes()?)?.called_from(args.from.clone());
            with_connections(args, &nodes, memory).await?
        }
        Over::Http => {
            ensure_usage!(args.from.is_empty(), "--from requires --over zookeeper");
            without_connections(args, at(args.target.nodes()?)?, memory).await?
        }
    };
    report.memory_before_bytes = memory_before_bytes;
    Ok(report)
}

/// State shared by the tasks that hold a session each.
struct HeldSessions {
    wanted: Cell<usize>,
    opened: Cell<usize>,
    opening: RefCell<Durations>,
    lost: Cell<usize>,
    first_loss: RefCell<Option<String>>,
    /// Permits to close sessions; none before the end.
    closing: Semaphore,
}

impl HeldSessions {
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

    /// Sends pings until the session may be closed, or is lost.
    async fn hold(self: Rc<Self>, mut session: Session) -> anyhow::Result<()> {
        let _permit = tokio::select! {
            biased;
            permit = self.closing.acquire() => permit.context("the semaphore is never closed")?,
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
    let held_sessions = HeldSessions::none(args.sessions);
    let mut holders = JoinSet::new();
    let begin = Instant::now();
    let opened = interruptible(open(args, nodes, &held_sessions, &mut holders)).await;
    let took = begin.elapsed();
    let held = match opened {
        Ok(()) => hold(args, || Ok(held_sessions.lost.get())).await,
        Err(error) => Err(error),
    };
    let memory_bytes = memory()?;
    // Close all sessions even after a failed opening: otherwise they would exist for a whole timeout.
    held_sessions.closing.add_permits(AT_A_TIME);
    while let Some(ended) = holders.join_next().await {
        if let Err(error) = ended.context("holding a session")? {
            held_sessions.lose(&error.context("at its end"));
        }
    }
    let held = held?;
    let opening = held_sessions.opening.borrow().percentiles();
    Ok(IdleReport {
        lost: held_sessions.lost.get(),
        first_loss: held_sessions.first_loss.take(),
        opening: Some(opening),
        memory_bytes,
        ..report_of(args, "zookeeper", nodes, took, held)
    })
}

/// Opens all sessions; each is held from then on.
async fn open(
    args: &Arguments,
    nodes: &Nodes,
    held_sessions: &Rc<HeldSessions>,
    holders: &mut JoinSet<anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let (sender, mut arrivals) = tokio::sync::mpsc::channel(AT_A_TIME);
    let mut openers = JoinSet::new();
    for _ in 0..AT_A_TIME.min(args.sessions) {
        let (nodes, held_sessions, sender) = (nodes.clone(), held_sessions.clone(), sender.clone());
        openers.spawn_local(
            async move {
                while let Some(left) = held_sessions.wanted.get().checked_sub(1) {
                    held_sessions.wanted.set(left);
                    let begin = Instant::now();
                    let session = Session::open(&nodes, left).await?;
                    held_sessions.opening.borrow_mut().record(begin.elapsed());
                    held_sessions.opened.set(held_sessions.opened.get() + 1);
                    // The receiver is gone: the measurement is ending.
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
    // Hold each session at once, because opening the others may take longer than a session's timeout.
    while let Some(session) = arrivals.recv().await {
        holders.spawn_local(held_sessions.clone().hold(session).boxed_local());
        progress.at(held_sessions.opened.get() as u64, args.sessions as u64);
        // Fail early: the other openers would most likely fail for the same reason.
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
    let mut sessions = Sessions::new(nodes.clone(), TTL, AT_A_TIME.min(args.sessions), args.locks);
    let mut progress = Progress::counting("opened", "sessions");
    let mut report = |opened: usize| progress.at(opened as u64, args.sessions as u64);
    let begin = Instant::now();
    let opened = interruptible(sessions.grow_to(args.sessions, &mut report)).await;
    let took = begin.elapsed();
    drop(progress);
    let held = match opened {
        Ok(()) => hold(args, || sessions.take_report().map(|_| 0)).await,
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
        locks: args.locks,
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

/// Holds the sessions for the requested time, or until an interrupt or a loss. Returns the duration.
async fn hold(args: &Arguments, mut lost: impl FnMut() -> anyhow::Result<usize>) -> anyhow::Result<Duration> {
    let begin = Instant::now();
    let end = begin + args.duration;
    let watched = async {
        while lost()? == 0 {
            sleep(POLL_INTERVAL).await;
        }
        anyhow::Ok(())
    };
    // Tells the operator when all sessions are open.
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
        "{} sessions with {} locks each at {} servers over {}: opened in {:.1} s, {:.0}/s; kept for {:.1} s, {} lost",
        report.sessions,
        report.locks,
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
            "node {}: {:.1} MiB before, {:.1} MiB with the sessions: {:.0} bytes each",
            number + 1,
            *before as f64 / 1_048_576.0,
            *after as f64 / 1_048_576.0,
            after.saturating_sub(*before) as f64 / report.sessions as f64
        ))?;
    }
    Ok(())
}
