//! `lockgate bench gap`: clients that write without a pause, and the longest times in which no write of anybody's succeeded. What is
//! done to the servers meanwhile is somebody else's business: a kill, a cut network, an upgrade.
//!
//! A writer whose server does not answer goes to the next one, as clients do.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use clap::Args;
use cli_support::api_client::request_id;
use cli_support::ensure_usage;
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
use super::{Target, http, report, zookeeper};

/// A server that has not answered for so long is left for the next one. Far longer than any write takes, and short enough that a
/// frozen server does not hold its writers for the length of what is measured.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Before the next try after a refusal. It is what a gap may be measured too long.
const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// Longer than writes that the lost server had already carried out may be on their way.
const SETTLED_AFTER: Duration = Duration::from_secs(1);

/// How many of the longest gaps are told.
const TOLD: usize = 5;

/// Data of each write.
const DATA_BYTES: usize = 100;

/// What `lockgate bench gap` is told.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    /// How the writers reach the nodes: http or zookeeper
    #[arg(long, value_enum, default_value = "http")]
    over: Over,
    /// How many write, spread over the nodes
    #[arg(long, default_value_t = 12)]
    writers: usize,
    /// For how long
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A time without any success.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gap {
    /// When it began, in milliseconds since the first success of all.
    pub at_ms: f64,
    /// How long it was, in milliseconds.
    pub ms: f64,
}

/// What the writers saw.
#[derive(Debug, Clone, Serialize)]
pub struct GapReport {
    /// How many wrote.
    pub writers: usize,
    /// For how long, from the first success.
    pub seconds: f64,
    /// Writes that succeeded.
    pub writes: u64,
    /// Tries that did not, or whose outcome is unknown.
    pub failures: u64,
    /// The longest gap, in milliseconds.
    pub longest_ms: f64,
    /// The longest ones, the longest first.
    pub gaps: Vec<Gap>,
}

/// Opens clients that write, at one server or another.
pub trait Open: 'static {
    /// What writes.
    type Client: Client;

    /// The writer with this number, at the server with that number (of which there are as many as one likes: they go round).
    fn open(&self, writer: usize, server: usize) -> impl Future<Output = anyhow::Result<Self::Client>>;
}

/// Writers at work. They end with this.
pub struct Writers {
    seen: Rc<RefCell<Seen>>,
    tasks: Vec<AbortOnDropHandle<()>>,
}

struct Seen {
    begun: Option<Instant>,
    last: Instant,
    writes: u64,
    failures: u64,
    last_failure: Option<String>,
    /// The longest first.
    gaps: Vec<Gap>,
}

impl Seen {
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

    /// There was none until now.
    fn gap(&mut self, begun: Instant, now: Instant) {
        let gap = Gap {
            at_ms: (self.last - begun).as_secs_f64() * 1e3,
            ms: (now - self.last).as_secs_f64() * 1e3,
        };
        let place = self.gaps.partition_point(|longer| longer.ms >= gap.ms);
        if place < TOLD {
            self.gaps.insert(place, gap);
            self.gaps.truncate(TOLD);
        }
    }
}

impl Writers {
    /// Has so many write, and waits until one has succeeded. Has to be in a `LocalSet`.
    pub async fn start<O: Open>(open: O, writers: usize) -> anyhow::Result<Self> {
        ensure!(writers > 0, "somebody has to write");
        let open = Rc::new(open);
        let seen = Rc::new(RefCell::new(Seen::new()));
        let tasks = (0..writers)
            .map(|writer| {
                let task = tokio::task::spawn_local(write(open.clone(), writer, seen.clone()).boxed_local());
                AbortOnDropHandle::new(task)
            })
            .collect();
        let writers = Self { seen, tasks };
        let begun = Instant::now();
        while writers.seen.borrow().begun.is_none() {
            if begun.elapsed() > 10 * ANSWER_WITHIN {
                let seen = writers.seen.borrow();
                bail!(
                    "nobody can write: {}",
                    seen.last_failure.as_deref().unwrap_or("no server answers")
                );
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        Ok(writers)
    }

    /// Waits until a write that came more than a second after `since` has succeeded, and with it the gap that began then is over.
    pub async fn succeed_again(&self, since: Instant, patience: Duration) -> anyhow::Result<()> {
        loop {
            if self.seen.borrow().last > since + SETTLED_AFTER {
                return Ok(());
            }
            ensure!(since.elapsed() < patience, "nobody could write for {patience:?}");
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Forgets the gaps so far: what comes is to be measured.
    pub fn begin(&self) {
        self.seen.borrow_mut().gaps.clear();
    }

    /// What they have seen up to now, with the gap that is open now.
    pub fn report(&self) -> GapReport {
        let now = Instant::now();
        let mut seen = self.seen.borrow_mut();
        let begun = seen.begun.unwrap_or(now);
        let gaps = seen.gaps.clone();
        seen.gap(begun, now);
        // The open one is looked at, and goes on.
        let told = std::mem::replace(&mut seen.gaps, gaps);
        GapReport {
            writers: self.tasks.len(),
            seconds: (now - begun).as_secs_f64(),
            writes: seen.writes,
            failures: seen.failures,
            longest_ms: told.first().map_or(0.0, |gap| gap.ms),
            gaps: told,
        }
    }
}

/// One writer: never gives up.
async fn write<O: Open>(open: Rc<O>, writer: usize, seen: Rc<RefCell<Seen>>) {
    let mut client = None;
    let mut server = writer;
    loop {
        let tried = async {
            let writing = match &mut client {
                Some(writing) => writing,
                none => none.insert(open.open(writer, server).await?),
            };
            writing.once(&mut Moments::unwatched()).await
        };
        match timeout(ANSWER_WITHIN, tried).await.context("no answer").flatten() {
            Ok(()) => seen.borrow_mut().succeeded(Instant::now()),
            Err(error) => {
                client = None;
                server += 1;
                {
                    let mut seen = seen.borrow_mut();
                    seen.failures += 1;
                    seen.last_failure = Some(format!("{error:#}"));
                }
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }
}

/// Writes by HTTP, each writer to its own znode.
pub(super) struct OverHttp {
    nodes: Nodes,
    run: String,
}

impl OverHttp {
    /// Creates the znodes.
    pub async fn make(nodes: Nodes, writers: usize) -> anyhow::Result<Self> {
        let run = request_id();
        http::make_tree(&nodes, &run, writers, DATA_BYTES).await?;
        Ok(Self { nodes, run })
    }

    /// Deletes them. A copy of what was given to the writers.
    pub async fn remove(nodes: &Nodes, run: &str) -> anyhow::Result<()> {
        http::remove_tree(nodes, run).await
    }

    /// What all its znodes have in their name.
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

/// Writes by ZooKeeper's protocol, likewise.
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

/// Measures, and prints what came out.
pub async fn run(args: Arguments) -> anyhow::Result<()> {
    ensure_usage!(args.writers > 0, "somebody has to write");
    ensure_usage!(args.seconds > 0, "at least one second is needed");
    let report = LocalSet::new().run_until(measure(&args)).await?;
    if args.json {
        return report::print_json(&report);
    }
    say(format!(
        "{} writers for {:.1} s: {} writes, {} tries that failed or were not answered",
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
    let lasts = Duration::from_secs(args.seconds);
    match args.over {
        Over::Http => {
            let nodes = args.target.nodes()?;
            let open = OverHttp::make(nodes.clone(), args.writers).await?;
            let run = open.run();
            let seen = watch(open, args.writers, lasts).await;
            OverHttp::remove(&nodes, &run).await.and(seen)
        }
        Over::Zookeeper => {
            let nodes = args.target.zookeeper_nodes()?;
            let tree = Rc::new(zookeeper::tree::Tree::new(&request_id()));
            let data = Bytes::from(vec![b'x'; DATA_BYTES]);
            tree.make(&nodes, Workload::Set, args.writers, &data).await?;
            let open = OverZookeeper {
                nodes: nodes.clone(),
                tree: tree.clone(),
            };
            let seen = watch(open, args.writers, lasts).await;
            // The server that is asked first may be the one that something was done to.
            let mut removed = Ok(());
            for server in 0..nodes.count() {
                removed = tree.remove(&nodes.beginning_with(server)).await;
                if removed.is_ok() {
                    break;
                }
            }
            removed.and(seen)
        }
    }
}

/// Has them write for so long, or until this is interrupted: what was seen by then counts.
pub async fn watch<O: Open>(open: O, writers: usize, lasts: Duration) -> anyhow::Result<GapReport> {
    let count = writers;
    let writers = Writers::start(open, writers).await?;
    writers.begin();
    // Whoever does something to the servers has to know from when on it is seen.
    tell(format!("{count} writers write"));
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
    fn the_longest_gaps_are_kept_and_the_open_one_is_told() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let mut seen = Seen::new();
        for ms in [0, 10, 110, 115, 120, 620, 621, 622, 625] {
            seen.succeeded(at(ms));
        }
        assert_eq!(seen.writes, 9);
        let gaps: Vec<_> = seen.gaps.iter().map(|gap| (gap.at_ms, gap.ms)).collect();
        assert_eq!(gaps[..3], [(120.0, 500.0), (10.0, 100.0), (0.0, 10.0)]);
        assert_eq!(gaps.len(), TOLD);

        seen.last = Instant::now();
        let writers = Writers {
            seen: Rc::new(RefCell::new(seen)),
            tasks: Vec::new(),
        };
        writers.begin();
        std::thread::sleep(Duration::from_millis(20));
        assert!(writers.report().longest_ms >= 20.0);
        assert!(writers.seen.borrow().gaps.is_empty());
    }
}
