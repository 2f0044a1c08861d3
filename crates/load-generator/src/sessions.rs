//! Many sessions, each with a lock, a connection and heartbeats of its own: whether all live, and what that costs the
//! nodes in memory and time on the processor.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use cli_support::api_client::{ApiClient, HeldLock, request_id};
use cli_support::ensure_usage;
use cli_support::output::say;
use futures_util::FutureExt as _;
use nix::unistd::Pid;
use serde::Serialize;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::Instant;

use super::report::{self, Durations, Percentiles, ms};
use super::{Target, processes};

/// A heartbeat is sent so often within a session's ttl, as the client library does, and up to a tenth earlier by chance:
/// who was held up together must not come back together ever after.
const BEATS: u32 = 3;

/// How long a node may refuse before the run is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sessions that are opened, checked or closed at a time.
const AT_A_TIME: usize = 64;

/// How often the nodes are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// What `lockgate bench sessions` is told.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    /// How many sessions
    #[arg(long, default_value_t = 10_000)]
    sessions: usize,
    /// The sessions' ttl in milliseconds
    #[arg(long, default_value_t = 10_000)]
    ttl_ms: u64,
    /// For how long
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What the nodes did in a stretch of time.
#[derive(Debug, Clone, Serialize)]
pub struct Stretch {
    /// When it ended, in seconds from the beginning.
    pub second: u64,
    /// Confirmed heartbeats in a second.
    pub heartbeats_per_second: f64,
    /// How long they took.
    pub heartbeat: Percentiles,
    /// Of each node on this machine: its share of one processor, in percent.
    pub cpu_percent: Vec<f64>,
    /// Of each node on this machine: its memory, in bytes.
    pub memory_bytes: Vec<u64>,
}

/// What it came to.
#[derive(Debug, Clone, Serialize)]
pub struct SessionsReport {
    /// How many sessions there were.
    pub sessions: usize,
    /// How long it took to open them and to take their locks, in seconds.
    pub opening_seconds: f64,
    /// Minute by minute.
    pub stretches: Vec<Stretch>,
    /// Sessions whose heartbeats failed.
    pub lost_sessions: usize,
    /// Locks that were not held under their tokens in the end.
    pub lost_locks: usize,
}

/// One client.
struct Client {
    api: ApiClient,
    session: String,
    held: HeldLock,
}

/// What all clients have seen since the last look.
struct Seen {
    heartbeats: RefCell<Durations>,
    lost: Cell<usize>,
}

/// Measures, and prints what came out.
pub async fn run(args: Arguments) -> anyhow::Result<()> {
    ensure_usage!(args.sessions > 0, "at least one session is needed");
    ensure_usage!(args.seconds > 0, "at least one second is needed");
    let report = LocalSet::new().run_until(measure(&args)).await?;
    if args.json {
        report::print_json(&report)?;
    } else {
        say(format!(
            "{} sessions, opened in {:.1} s; {} lost, {} locks lost",
            report.sessions, report.opening_seconds, report.lost_sessions, report.lost_locks
        ))?;
    }
    ensure!(
        report.lost_sessions + report.lost_locks == 0,
        "sessions or locks were lost"
    );
    Ok(())
}

async fn measure(args: &Arguments) -> anyhow::Result<SessionsReport> {
    let nodes = args.target.nodes()?;
    let pids = args.target.processes()?;
    let ttl = Duration::from_millis(args.ttl_ms);
    let seen = Rc::new(Seen {
        heartbeats: RefCell::new(Durations::new()),
        lost: Cell::new(0),
    });
    let begin = Instant::now();
    // All stop at the same moment, so that their locks are looked at while they live.
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let run = request_id();
    let mut clients = JoinSet::new();
    let next = Rc::new(Cell::new(0));
    let mut opening = JoinSet::new();
    let (opened, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..AT_A_TIME.min(args.sessions) {
        let (nodes, next, run, opened) = (nodes.clone(), next.clone(), run.clone(), opened.clone());
        let sessions = args.sessions;
        opening.spawn_local(
            async move {
                loop {
                    let number = next.replace(next.get() + 1);
                    if number >= sessions {
                        return anyhow::Ok(());
                    }
                    let mut api = nodes.client(number, PATIENCE);
                    let session = api.open_session(ttl, "lockgate bench").await?;
                    let held = api
                        .acquire_with(&session, &format!("bench/{run}/{number}"), serde_json::json!({}))
                        .await?;
                    let client = Client { api, session, held };
                    opened
                        .send(client)
                        .map_err(|_| anyhow::anyhow!("nobody takes the sessions"))?;
                }
            }
            .boxed_local(),
        );
    }
    drop(opened);
    // Each begins with its heartbeats at once: the opening of the others takes longer than a session lives.
    while let Some(client) = arrivals.recv().await {
        clients.spawn_local(beat(client, ttl, seen.clone(), stopped.clone()).boxed_local());
    }
    while let Some(done) = opening.join_next().await {
        done.context("a client")?.context("opening the sessions")?;
    }
    let opening = begin.elapsed();

    let end = Instant::now() + Duration::from_secs(args.seconds);
    let begin = Instant::now();
    let mut looks = Looks::new(&pids, &seen, begin)?;
    let mut stretches = Vec::new();
    while Instant::now() < end {
        tokio::time::sleep_until(end.min(Instant::now() + LOOK_EVERY)).await;
        let stretch = looks.next(&pids, &seen, begin)?;
        if !args.json {
            print(&stretch, stretches.is_empty())?;
        }
        stretches.push(stretch);
    }
    stop.send_replace(true);
    let mut lost_locks = 0;
    while let Some(client) = clients.join_next().await {
        lost_locks += usize::from(!client.context("a client")??);
    }
    Ok(SessionsReport {
        sessions: args.sessions,
        opening_seconds: opening.as_secs_f64(),
        stretches,
        lost_sessions: seen.lost.get(),
        lost_locks,
    })
}

/// Renews the session until it is stopped, and then looks whether the lock is still held. Says whether it was.
async fn beat(
    client: Client,
    ttl: Duration,
    seen: Rc<Seen>,
    mut stopped: tokio::sync::watch::Receiver<bool>,
) -> anyhow::Result<bool> {
    let Client {
        mut api,
        session,
        held,
    } = client;
    loop {
        tokio::select! {
            () = tokio::time::sleep(interval(ttl)) => {}
            _ = stopped.wait_for(|stopped| *stopped) => break,
        }
        let sent = Instant::now();
        if let Err(error) = api.heartbeat(&session).await {
            tracing::warn!(session, %error, "a session is lost");
            seen.lost.set(seen.lost.get() + 1);
            return Ok(false);
        }
        seen.heartbeats.borrow_mut().record(sent.elapsed());
    }
    let kept = api.check(&held).await.context("looking at a lock")?;
    api.close_session(&session).await.context("closing a session")?;
    Ok(kept)
}

/// Until the next heartbeat.
fn interval(ttl: Duration) -> Duration {
    let mut bits = [0; 1];
    getrandom::fill(&mut bits).expect("the operating system has random numbers");
    let longest = ttl / BEATS;
    longest - longest / 10 * u32::from(bits[0]) / 255
}

/// What is known from the last look.
struct Looks {
    at: Instant,
    cpu: Vec<Duration>,
}

impl Looks {
    fn new(pids: &[Pid], seen: &Seen, now: Instant) -> anyhow::Result<Self> {
        seen.heartbeats.replace(Durations::new());
        Ok(Self {
            at: now,
            cpu: cpu_times(pids)?,
        })
    }

    fn next(&mut self, pids: &[Pid], seen: &Seen, begin: Instant) -> anyhow::Result<Stretch> {
        let (now, cpu) = (Instant::now(), cpu_times(pids)?);
        let took = (now - self.at).as_secs_f64();
        let heartbeat = seen.heartbeats.replace(Durations::new()).percentiles();
        let used = cpu.iter().zip(&self.cpu);
        let cpu_percent = used
            .map(|(now, before)| (*now - *before).as_secs_f64() / took * 100.0)
            .collect();
        *self = Self { at: now, cpu };
        let memory = pids.iter().map(|pid| processes::memory(*pid));
        Ok(Stretch {
            second: (now - begin).as_secs(),
            heartbeats_per_second: heartbeat.count as f64 / took,
            heartbeat,
            cpu_percent,
            memory_bytes: memory.collect::<anyhow::Result<_>>()?,
        })
    }
}

fn cpu_times(pids: &[Pid]) -> anyhow::Result<Vec<Duration>> {
    pids.iter().map(|pid| processes::cpu_time(*pid)).collect()
}

fn print(stretch: &Stretch, first: bool) -> anyhow::Result<()> {
    if first {
        say(format!(
            "{:>7} {:>12} {:>8} {:>8} {:>8}   {:<24} {:<24}",
            "second", "heartbeats/s", "p50 ms", "p99 ms", "max ms", "CPU % of each node", "MiB of each node"
        ))?;
    }
    let list = |numbers: Vec<String>| numbers.join(" ");
    let cpu = list(
        stretch
            .cpu_percent
            .iter()
            .map(|percent| format!("{percent:.1}"))
            .collect(),
    );
    let memory = stretch.memory_bytes.iter();
    let memory = list(
        memory
            .map(|bytes| format!("{:.1}", *bytes as f64 / 1048576.0))
            .collect(),
    );
    say(format!(
        "{:>7} {:>12.0} {:>8} {:>8} {:>8}   {cpu:<24} {memory:<24}",
        stretch.second,
        stretch.heartbeats_per_second,
        ms(stretch.heartbeat.p50_us),
        ms(stretch.heartbeat.p99_us),
        ms(stretch.heartbeat.max_us),
    ))
}
