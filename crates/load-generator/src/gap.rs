//! `lockgate bench gap`: clients that write without a pause, and the longest times without a successful
//! write. Meanwhile the operator disturbs the servers, for example by a kill, a network partition or an
//! upgrade.
//!
//! A writer whose server does not respond switches to the next one, as clients do.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use clap::Args;
use cli_support::api_client::request_id;
use cli_support::durations;
use cli_support::ensure_usage;
use cli_support::format::Output;
use cli_support::output::{say, tell};
use cli_support::signals;
use futures_util::FutureExt as _;
use serde::Serialize;
use tokio::task::LocalSet;
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::drive::{Client, Moments};
use super::load::Over;
use super::nodes::Nodes;
use super::workload::Workload;
use super::{Target, http, zookeeper};

/// Response timeout after which a writer switches to the next server. Far longer than any write takes, and
/// short enough that a frozen server does not block its writers during the whole measurement.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Pause before the next attempt after a failure. A gap may be measured too long by this time.
const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// Time after which writes that the lost server had already executed have certainly completed.
const SETTLED_AFTER: Duration = Duration::from_secs(1);

/// Maximum number of reported gaps.
const MAX_GAPS: usize = 5;

/// Data bytes of each write.
const DATA_BYTES: usize = 100;

/// Options of `lockgate bench gap`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    /// Protocol of the writers: http or zookeeper
    #[arg(long, value_enum, default_value = "http")]
    over: Over,
    /// Number of writers, spread over the nodes
    #[arg(long, default_value_t = 12)]
    writers: usize,
    /// Duration of the load
    #[arg(long, value_name = "TIME", alias = "seconds", default_value = "30s", value_parser = durations::seconds)]
    duration: Duration,
    /// Format of the result
    #[command(flatten)]
    output: Output,
}

/// Time without a success.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gap {
    /// Beginning, in milliseconds since the first success.
    pub at_ms: f64,
    /// Length in milliseconds.
    pub ms: f64,
}

/// Result of the measurement.
#[derive(Debug, Clone, Serialize)]
pub struct GapReport {
    /// Number of writers.
    pub writers: usize,
    /// Duration in seconds from the first success.
    pub seconds: f64,
    /// Number of successful writes.
    pub writes: u64,
    /// Number of failed writes, including those with an unknown outcome.
    pub failures: u64,
    /// Longest gap in milliseconds.
    pub longest_ms: f64,
    /// Longest gaps, the longest first.
    pub gaps: Vec<Gap>,
}

/// Factory of writing clients.
pub trait Open: 'static {
    /// Writing client.
    type Client: Client;

    /// Opens the writer with this number at a server. Server numbers beyond the last one wrap around.
    fn open(&self, writer: usize, server: usize) -> impl Future<Output = anyhow::Result<Self::Client>>;
}

/// Running writers, which end when dropped.
pub struct Writers {
    log: Rc<RefCell<WriteLog>>,
    tasks: Vec<AbortOnDropHandle<()>>,
}

struct WriteLog {
    begun: Option<Instant>,
    last: Instant,
    writes: u64,
    failures: u64,
    last_failure: Option<String>,
    /// Longest gaps, the longest first.
    gaps: Vec<Gap>,
}

impl WriteLog {
    fn new() -> Self {
        Self {
            begun: None,
            last: Instant::now(),
            writes: 0,
            failures: 0,
            last_failure: None,
            gaps: Vec::new(),
        }
    }

    fn succeeded(&mut self, now: Instant) {
        match self.begun {
            Some(begun) => self.gap(begun, now),
            None => self.begun = Some(now),
        }
        self.writes += 1;
        self.last = now;
    }

    /// Records the gap from the last success until now.
    fn gap(&mut self, begun: Instant, now: Instant) {
        let gap = Gap {
            at_ms: (self.last - begun).as_secs_f64() * 1e3,
            ms: (now - self.last).as_secs_f64() * 1e3,
        };
        let index = self.gaps.partition_point(|longer| longer.ms >= gap.ms);
        if index < MAX_GAPS {
            self.gaps.insert(index, gap);
            self.gaps.truncate(MAX_GAPS);
        }
    }
}

impl Writers {
    /// Starts writers, and waits until one has succeeded. Needs a `LocalSet`.
    pub async fn start<O: Open>(open: O, writers: usize) -> anyhow::Result<Self> {
        ensure!(writers > 0, "at least one writer is needed");
        let open = Rc::new(open);
        let log = Rc::new(RefCell::new(WriteLog::new()));
        let tasks = (0..writers)
            .map(|writer| {
                let task = tokio::task::spawn_local(write(open.clone(), writer, log.clone()).boxed_local());
                AbortOnDropHandle::new(task)
            })
            .collect();
        let writers = Self { log, tasks };
        let begun = Instant::now();
        while writers.log.borrow().begun.is_none() {
            if begun.elapsed() > 10 * RESPONSE_TIMEOUT {
                let log = writers.log.borrow();
                bail!(
                    "no writer succeeds: {}",
                    log.last_failure.as_deref().unwrap_or("no server responds")
                );
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        Ok(writers)
    }

    /// Waits for a success more than a second after `since`, which ends the gap that began then.
    pub async fn wait_for_success(&self, since: Instant, timeout: Duration) -> anyhow::Result<()> {
        loop {
            if self.log.borrow().last > since + SETTLED_AFTER {
                return Ok(());
            }
            ensure!(since.elapsed() < timeout, "no write succeeded for {timeout:?}");
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Drops the gaps so far and begins the measurement.
    pub fn begin(&self) {
        self.log.borrow_mut().gaps.clear();
    }

    /// Returns the observations so far, including the gap that is open now.
    pub fn report(&self) -> GapReport {
        let now = Instant::now();
        let mut log = self.log.borrow_mut();
        let begun = log.begun.unwrap_or(now);
        let gaps = log.gaps.clone();
        log.gap(begun, now);
        // The open gap is reported, but continues.
        let reported = std::mem::replace(&mut log.gaps, gaps);
        GapReport {
            writers: self.tasks.len(),
            seconds: (now - begun).as_secs_f64(),
            writes: log.writes,
            failures: log.failures,
            longest_ms: reported.first().map_or(0.0, |gap| gap.ms),
            gaps: reported,
        }
    }
}

/// Runs one writer, which never gives up.
async fn write<O: Open>(open: Rc<O>, writer: usize, log: Rc<RefCell<WriteLog>>) {
    let mut client = None;
    let mut server = writer;
    loop {
        let attempt = async {
            let connected = match &mut client {
                Some(connected) => connected,
                none => none.insert(open.open(writer, server).await?),
            };
            connected.once(&mut Moments::unwatched()).await
        };
        match timeout(RESPONSE_TIMEOUT, attempt)
            .await
            .context("no response")
            .flatten()
        {
            Ok(()) => log.borrow_mut().succeeded(Instant::now()),
            Err(error) => {
                client = None;
                server += 1;
                {
                    let mut log = log.borrow_mut();
                    log.failures += 1;
                    log.last_failure = Some(format!("{error:#}"));
                }
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }
}

/// Writers over HTTP, each with a znode of its own.
pub(super) struct OverHttp {
    nodes: Nodes,
    run: String,
}

impl OverHttp {
    /// Creates the znodes.
    pub async fn create(nodes: Nodes, writers: usize) -> anyhow::Result<Self> {
        let run = request_id();
        http::create_tree(&nodes, &run, writers, DATA_BYTES).await?;
        Ok(Self { nodes, run })
    }

    /// Deletes the znodes of a run.
    pub async fn remove(nodes: &Nodes, run: &str) -> anyhow::Result<()> {
        http::remove_tree(nodes, run).await
    }

    /// Returns the name of the run, which is part of all its paths.
    pub fn run(&self) -> String {
        self.run.clone()
    }
}

impl Open for OverHttp {
    type Client = http::client::Caller;

    async fn open(&self, writer: usize, server: usize) -> anyhow::Result<Self::Client> {
        http::setter(&self.nodes, &self.run, writer, server, DATA_BYTES).await
    }
}

/// Writers over ZooKeeper's protocol, each with a znode of its own.
struct OverZookeeper {
    nodes: Nodes,
    tree: Rc<zookeeper::tree::Tree>,
}

impl Open for OverZookeeper {
    type Client = zookeeper::client::Caller;

    async fn open(&self, writer: usize, server: usize) -> anyhow::Result<Self::Client> {
        let data = Bytes::from(vec![b'y'; DATA_BYTES]);
        let session = zookeeper::session::Session::open_once(&self.nodes, server).await?;
        let cycle = zookeeper::client::Cycle::new(Workload::Set, &self.tree, writer, data);
        Ok(zookeeper::client::Caller { session, cycle })
    }
}

/// Measures and prints the result.
pub async fn run(args: Arguments) -> anyhow::Result<()> {
    ensure_usage!(args.writers > 0, "at least one writer is needed");
    let report = LocalSet::new().run_until(measure(&args)).await?;
    if args.output.is_document() {
        return args.output.say(&report, String::new);
    }
    say(format!(
        "{} writers for {:.1} s: {} writes, {} failed or unanswered attempts",
        report.writers, report.seconds, report.writes, report.failures
    ))?;
    for gap in &report.gaps {
        say(format!(
            "no success for {:>8.1} ms, from {:>7.2} s on",
            gap.ms,
            gap.at_ms / 1e3
        ))?;
    }
    Ok(())
}

async fn measure(args: &Arguments) -> anyhow::Result<GapReport> {
    let lasts = args.duration;
    match args.over {
        Over::Http => {
            let nodes = args.target.nodes()?;
            let open = OverHttp::create(nodes.clone(), args.writers).await?;
            let run = open.run();
            let report = measure_gaps(open, args.writers, lasts).await;
            OverHttp::remove(&nodes, &run).await.and(report)
        }
        Over::Zookeeper => {
            let nodes = args.target.zookeeper_nodes()?;
            let tree = Rc::new(zookeeper::tree::Tree::new(&request_id()));
            let data = Bytes::from(vec![b'x'; DATA_BYTES]);
            tree.create(&nodes, Workload::Set, args.writers, &data).await?;
            let open = OverZookeeper {
                nodes: nodes.clone(),
                tree: tree.clone(),
            };
            let report = measure_gaps(open, args.writers, lasts).await;
            // Try all servers, because the first one may be the disturbed one.
            let mut removed = Ok(());
            for server in 0..nodes.count() {
                removed = tree.remove(&nodes.beginning_with(server)).await;
                if removed.is_ok() {
                    break;
                }
            }
            removed.and(report)
        }
    }
}

/// Runs the writers for this time, or until an interrupt, and returns the report so far.
pub async fn measure_gaps<O: Open>(open: O, writers: usize, lasts: Duration) -> anyhow::Result<GapReport> {
    let count = writers;
    let writers = Writers::start(open, writers).await?;
    writers.begin();
    // Tells the operator when the servers may be disturbed.
    tell(format!("{count} writers are running"));
    tokio::select! {
        () = tokio::time::sleep(lasts) => {}
        interrupted = signals::interrupted() => interrupted?,
    }
    Ok(writers.report())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_has_the_longest_gaps_and_the_open_one() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let mut log = WriteLog::new();
        for ms in [0, 10, 110, 115, 120, 620, 621, 622, 625] {
            log.succeeded(at(ms));
        }
        assert_eq!(log.writes, 9);
        let gaps: Vec<_> = log.gaps.iter().map(|gap| (gap.at_ms, gap.ms)).collect();
        assert_eq!(gaps[..3], [(120.0, 500.0), (10.0, 100.0), (0.0, 10.0)]);
        assert_eq!(gaps.len(), MAX_GAPS);

        log.last = Instant::now();
        let writers = Writers {
            log: Rc::new(RefCell::new(log)),
            tasks: Vec::new(),
        };
        writers.begin();
        std::thread::sleep(Duration::from_millis(20));
        assert!(writers.report().longest_ms >= 20.0);
        assert!(writers.log.borrow().gaps.is_empty());
    }
}
