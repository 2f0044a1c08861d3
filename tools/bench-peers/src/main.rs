//! Loads for the servers that Lockgate is compared with, by the drivers and reports of Lockgate's own load generator
//! ([`load_generator::drive`]), and a minimal server to compare with ([`openraft_bound`]).
//!
//! `tools/compare/run` calls it. It is a program of its own so that the shipped one does not carry what speaks to others' servers.

mod etcd;
mod grpc;
mod openraft_bound;
mod protobuf;
mod redis;
mod redlock;
mod resp;

use std::cell::Cell;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::{Args, Parser, Subcommand, ValueEnum};
use load_generator::drive::{Client, Drive, Moments};
use load_generator::fill::FillReport;
use load_generator::gap::{self, Open};
use load_generator::load::Pace;
use load_generator::report::{self, LoadReport, Subject};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;
use tokio::time::Instant;

/// Clients that fill: neither etcd nor Redis becomes faster by more of them.
const FILLERS: usize = 256;

/// Whom to load, and with what.
#[derive(Debug, Parser)]
#[command(name = "bench-peers")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// etcd, by its own protocol (gRPC), its locks by its own lock service
    Etcd(Loaded),
    /// One Redis; its locks are SET NX PX, and a script that deletes what is one's own
    Redis(Loaded),
    /// Locks over several Redis masters, as its authors describe them (RedLock)
    Redlock(Loaded),
    /// One of the three processes of a minimal lock server by openraft and HTTP, which `lockgate bench lock` can load
    OpenraftServer {
        /// The number of the process: 0 leads; 1 and 2 have to listen before it starts
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(0..=2))]
        node: u64,
        /// Where it serves HTTP, as HOST:PORT
        #[arg(long)]
        clients: String,
        /// Where process 1 or 2 listens for the leader, as HOST:PORT
        #[arg(long, required_unless_present = "others", conflicts_with = "others")]
        listen: Option<String>,
        /// Where processes 1 and 2 listen, for process 0, as HOST:PORT,HOST:PORT
        #[arg(long, value_delimiter = ',')]
        others: Vec<String>,
        /// Its log file, which is made anew
        #[arg(long)]
        log: PathBuf,
    },
    /// Many keys, as fast as they are taken; they stay
    Fill {
        /// Whose
        #[arg(value_enum)]
        whose: Whose,
        #[command(flatten)]
        servers: Servers,
        /// How many
        #[arg(long, default_value_t = 1_000_000)]
        znodes: u64,
        /// How much data each has
        #[arg(long, default_value_t = 100)]
        data_bytes: usize,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Writes to etcd without a pause, and the longest times without a success
    EtcdGap {
        #[command(flatten)]
        servers: Servers,
        /// How many write, spread over the servers
        #[arg(long, default_value_t = 12)]
        writers: usize,
        /// For how long
        #[arg(long, default_value_t = 30)]
        seconds: u64,
    },
}

#[derive(Debug, Args)]
struct Servers {
    /// Where the servers are, as HOST:PORT, separated by commas
    #[arg(long, value_delimiter = ',', required = true)]
    servers: Vec<String>,
}

#[derive(Debug, Args)]
struct Loaded {
    #[command(flatten)]
    servers: Servers,
    /// What the clients do
    #[arg(long, value_enum)]
    workload: Workload,
    /// Who does not get a lock of Redis tries again after a random time of at most so many milliseconds
    #[arg(long, default_value_t = 5)]
    retry_ms: u64,
    #[command(flatten)]
    pace: Pace,
}

/// Whose keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Whose {
    Etcd,
    Redis,
}

/// What the clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Workload {
    /// Each its own lock
    Lock,
    /// All the same lock
    Contended,
    /// New data for the client's own key
    Set,
    /// The data of the client's own key
    Get,
    /// A new key every time
    Create,
}

impl Workload {
    fn name(self) -> &'static str {
        match self {
            Workload::Lock => "lock",
            Workload::Contended => "contended",
            Workload::Set => "set",
            Workload::Get => "get",
            Workload::Create => "create",
        }
    }
}

/// What a client is told.
#[derive(Debug, Clone)]
struct Task {
    workload: Workload,
    /// The key of its own, or of all.
    key: String,
    data: Vec<u8>,
    retry: Duration,
    /// How long what it holds lives without it: longer than the load lasts.
    ttl: Duration,
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.context("starting the runtime").and_then(|runtime| {
        let work = run(Cli::parse().command);
        runtime.block_on(LocalSet::new().run_until(work))
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-peers: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Etcd(loaded) => {
            measure("etcd", &loaded, async |task, number| {
                etcd::Caller::open(loaded.servers.at(number), task).await
            })
            .await
        }
        Command::Redis(loaded) => {
            measure("redis", &loaded, async |task, number| {
                redis::Caller::open(loaded.servers.at(number), task).await
            })
            .await
        }
        Command::Redlock(loaded) => {
            ensure!(
                matches!(loaded.workload, Workload::Lock | Workload::Contended),
                "RedLock is a lock"
            );
            measure("redlock", &loaded, async |task, _| {
                redlock::Caller::open(&loaded.servers.servers, task).await
            })
            .await
        }
        Command::OpenraftServer {
            node,
            clients,
            listen,
            others,
            log,
        } => {
            let bind = async |to: &str| TcpListener::bind(to).await.with_context(|| to.to_owned());
            let clients = bind(&clients).await?;
            let serve = async {
                match (node, listen) {
                    (0, None) => openraft_bound::lead(clients, &others, &log).await,
                    (1.., Some(listen)) => {
                        openraft_bound::follow(node, clients, bind(&listen).await?, &log).await
                    }
                    _ => bail!("process 0 needs --others, and 1 and 2 need --listen"),
                }
            };
            // An instrumented program writes its counts when it ends by itself.
            let mut terminated = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
            tokio::select! {
                served = serve => served,
                _ = terminated.recv() => Ok(()),
            }
        }
        Command::Fill {
            whose,
            servers,
            znodes,
            data_bytes,
            json,
        } => fill(whose, &servers, znodes, data_bytes).await?.print(json),
        Command::EtcdGap {
            servers,
            writers,
            seconds,
        } => {
            let report =
                gap::measure_gaps(EtcdWriters(servers), writers, Duration::from_secs(seconds)).await?;
            report::print_json(&report)
        }
    }
}

impl Servers {
    fn at(&self, number: usize) -> &str {
        &self.servers[number % self.servers.len()]
    }
}

/// Measures with each number of clients, and prints what came out as `lockgate bench` does.
async fn measure<C: Client>(
    over: &str,
    loaded: &Loaded,
    open: impl AsyncFn(Task, usize) -> anyhow::Result<C>,
) -> anyhow::Result<()> {
    let (pace, workload) = (&loaded.pace, loaded.workload);
    pace.check()?;
    let run = fastrand::u64(..);
    let mut reports = Vec::new();
    for &clients in &pace.clients {
        let mut callers = Vec::with_capacity(clients);
        for number in 0..clients {
            let key = match workload {
                Workload::Contended => format!("bench/{run:016x}/all"),
                _ => format!("bench/{run:016x}/{number}"),
            };
            let task = Task {
                workload,
                key,
                data: vec![b'x'; pace.data_bytes],
                retry: Duration::from_millis(loaded.retry_ms),
                ttl: Duration::from_secs(pace.seconds + pace.warmup + 60),
            };
            callers.push(open(task, number).await.context("opening a client")?);
        }
        let drive = Drive {
            label: format!("{over} {}, {clients} clients", workload.name()),
            warmup: Duration::from_secs(pace.warmup),
            measured: Duration::from_secs(pace.seconds),
            rate: pace.rate,
            one_lock: workload == Workload::Contended,
            progress: pace.progress,
            processes: Vec::new(),
        };
        let driven = drive.run(callers).await?;
        let subject = Subject {
            workload: workload.name(),
            over,
            nodes: loaded.servers.servers.len(),
            clients,
        };
        let report = LoadReport::new(&subject, &drive, &driven);
        if !pace.json {
            report::print_load(&report, reports.is_empty())?;
        }
        reports.push(report);
    }
    if pace.json {
        report::print_json(&reports)?;
    }
    report::require_no_errors(&reports)
}

/// Puts so many keys, a thousand of a client at a time.
async fn fill(whose: Whose, servers: &Servers, keys: u64, data_bytes: usize) -> anyhow::Result<FillReport> {
    let next = Rc::new(Cell::new(0));
    let mut fillers = Vec::new();
    let begin = Instant::now();
    for number in 0..FILLERS {
        let task = Task {
            workload: Workload::Create,
            key: format!("fill/{number}"),
            data: vec![b'x'; data_bytes],
            retry: Duration::ZERO,
            ttl: Duration::ZERO,
        };
        let (next, server) = (next.clone(), servers.at(number).to_owned());
        fillers.push(tokio::task::spawn_local(async move {
            match whose {
                Whose::Etcd => create(etcd::Caller::open(&server, task).await?, &next, keys).await,
                Whose::Redis => create(redis::Caller::open(&server, task).await?, &next, keys).await,
            }
        }));
    }
    for filler in fillers {
        filler.await.context("a client that fills")??;
    }
    Ok(FillReport::new(keys, begin.elapsed()))
}

async fn create<C: Client>(mut client: C, next: &Cell<u64>, keys: u64) -> anyhow::Result<()> {
    while next.get() < keys {
        next.set(next.get() + 1);
        client.once(&mut Moments::unwatched()).await?;
    }
    client.close().await
}

/// Clients of etcd that put.
struct EtcdWriters(Servers);

impl Open for EtcdWriters {
    type Client = etcd::Caller;

    async fn open(&self, writer: usize, server: usize) -> anyhow::Result<etcd::Caller> {
        let task = Task {
            workload: Workload::Set,
            key: format!("gap/{writer}"),
            data: vec![b'y'; 100],
            retry: Duration::ZERO,
            ttl: Duration::ZERO,
        };
        etcd::Caller::open(self.0.at(server), task).await
    }
}
