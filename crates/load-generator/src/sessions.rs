//! Many sessions, each with a lock, a connection and heartbeats of its own: measures lost sessions, and the
//! nodes' memory and CPU time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use cli_support::api_client::{ApiClient, HeldLock, request_id};
use cli_support::durations;
use cli_support::ensure_usage;
use cli_support::format::Output;
use cli_support::output::say;
use futures_util::FutureExt as _;
use nix::unistd::Pid;
use serde::Serialize;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::Instant;

use super::report::{Durations, Percentiles, ms};
use super::{Target, processes};

/// Number of heartbeats within a session's TTL, as in the client library. Each interval is randomly shortened
/// by up to a tenth, so that sessions that were delayed together do not stay synchronized.
const HEARTBEATS_PER_TTL: u32 = 3;

/// Total time of a call before the run is aborted.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Number of sessions that are opened, checked or closed in parallel.
const AT_A_TIME: usize = 64;

/// Interval of the measurements of the nodes.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(60);

/// Options of `lockgate bench sessions`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    /// Number of sessions
    #[arg(long, default_value_t = 10_000)]
    sessions: usize,
    /// TTL of the sessions
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = durations::seconds)]
    ttl: Duration,
    /// Duration of the measurement
    #[arg(long, value_name = "TIME", alias = "seconds", default_value = "10min", value_parser = durations::seconds)]
    duration: Duration,
    /// Format of the result
    #[command(flatten)]
    output: Output,
}

/// Measurement of one interval.
#[derive(Debug, Clone, Serialize)]
pub struct Stretch {
    /// End of the interval, in seconds from the beginning.
    pub second: u64,
    /// Confirmed heartbeats per second.
    pub heartbeats_per_second: f64,
    /// Durations of the heartbeats.
    pub heartbeat: Percentiles,
    /// CPU time of each local node, in percent of one processor.
    pub cpu_percent: Vec<f64>,
    /// Memory of each local node, in bytes.
    pub memory_bytes: Vec<u64>,
}

/// Result of the measurement.
#[derive(Debug, Clone, Serialize)]
pub struct SessionsReport {
    /// Number of sessions.
    pub sessions: usize,
    /// Time to open the sessions and to acquire their locks, in seconds.
    pub opening_seconds: f64,
    /// Measurements of the intervals.
    pub stretches: Vec<Stretch>,
    /// Number of sessions whose heartbeats failed.
    pub lost_sessions: usize,
    /// Number of locks that were not held with their tokens at the end.
    pub lost_locks: usize,
}

/// Session with its lock.
struct Client {
    api: ApiClient,
    session: String,
    held: HeldLock,
}

/// Observations of all clients in the current interval.
struct Observations {
    heartbeats: RefCell<Durations>,
    lost: Cell<usize>,
}

/// Measures and prints the result.
pub async fn run(args: Arguments) -> anyhow::Result<()> {
    ensure_usage!(args.sessions > 0, "at least one session is needed");
    let report = LocalSet::new().run_until(measure(&args)).await?;
    if args.output.is_document() {
        args.output.say(&report, String::new)?;
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
    let ttl = args.ttl;
    let observed = Rc::new(Observations {
        heartbeats: RefCell::new(Durations::new()),
        lost: Cell::new(0),
    });
    let begin = Instant::now();
    // All clients stop at the same moment, so that their locks are checked while the sessions are alive.
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
                    let mut api = nodes.client(number, CALL_TIMEOUT);
                    let session = api.open_session(ttl, "lockgate bench").await?;
                    let held = api
                        .acquire_with(&session, &format!("bench/{run}/{number}"), serde_json::json!({}))
                        .await?;
                    let client = Client { api, session, held };
                    opened
                        .send(client)
                        .map_err(|_| anyhow::anyhow!("the receiver of the sessions is gone"))?;
                }
            }
            .boxed_local(),
        );
    }
    drop(opened);
    // Heartbeats begin at once, because opening the other sessions takes longer than a TTL.
    while let Some(client) = arrivals.recv().await {
        clients.spawn_local(send_heartbeats(client, ttl, observed.clone(), stopped.clone()).boxed_local());
    }
    while let Some(done) = opening.join_next().await {
        done.context("a client")?.context("opening the sessions")?;
    }
    let opening = begin.elapsed();

    let end = Instant::now() + args.duration;
    let begin = Instant::now();
    let mut sampler = Sampler::new(&pids, &observed, begin)?;
    let mut stretches = Vec::new();
    while Instant::now() < end {
        tokio::time::sleep_until(end.min(Instant::now() + SAMPLE_INTERVAL)).await;
        let stretch = sampler.next(&pids, &observed, begin)?;
        if !args.output.is_document() {
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
        lost_sessions: observed.lost.get(),
        lost_locks,
    })
}

/// Sends heartbeats until stopped, and then checks whether the lock is still held, which it returns.
async fn send_heartbeats(
    client: Client,
    ttl: Duration,
    observed: Rc<Observations>,
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
            tracing::warn!(session, %error, "bench: session lost");
            observed.lost.set(observed.lost.get() + 1);
            return Ok(false);
        }
        observed.heartbeats.borrow_mut().record(sent.elapsed());
    }
    let is_held = api.check(&held).await.context("checking a lock")?;
    api.close_session(&session).await.context("closing a session")?;
    Ok(is_held)
}

/// Returns the random interval until the next heartbeat.
fn interval(ttl: Duration) -> Duration {
    let mut bits = [0; 1];
    getrandom::fill(&mut bits).expect("the operating system has random numbers");
    let longest = ttl / HEARTBEATS_PER_TTL;
    longest - longest / 10 * u32::from(bits[0]) / 255
}

/// State of the previous measurement.
struct Sampler {
    at: Instant,
    cpu: Vec<Duration>,
}

impl Sampler {
    fn new(pids: &[Pid], observed: &Observations, now: Instant) -> anyhow::Result<Self> {
        observed.heartbeats.replace(Durations::new());
        Ok(Self {
            at: now,
            cpu: cpu_times(pids)?,
        })
    }

    fn next(&mut self, pids: &[Pid], observed: &Observations, begin: Instant) -> anyhow::Result<Stretch> {
        let (now, cpu) = (Instant::now(), cpu_times(pids)?);
        let took = (now - self.at).as_secs_f64();
        let heartbeat = observed.heartbeats.replace(Durations::new()).percentiles();
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
