//! Loads for the servers that Lockgate is compared with, on the drivers and reports of Lockgate's own load
//! generator ([`load_generator::drive`]), and a minimal server for comparison ([`openraft_bound`]).
//!
//! `tools/compare/run` calls this program. It is separate so that the shipped program contains no clients of
//! other servers.

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
use cli_support::format::Output;
use cli_support::output::say;
use load_generator::drive::{Client, Drive, Moments};
use load_generator::fill::FillReport;
use load_generator::gap::{self, Open};
use load_generator::load::Pace;
use load_generator::report::{self, LoadReport, Subject};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;
use tokio::time::Instant;

/// Number of clients that fill: with more, neither etcd nor Redis becomes faster.
const FILLERS: usize = 256;

/// Loads other lock servers and key-value stores as `lockgate bench` loads Lockgate
#[derive(Debug, Parser)]
#[command(name = "bench-peers")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// etcd through its own protocol (gRPC), with locks through its own lock service
    Etcd(Loaded),
    /// One Redis, with locks through SET NX PX and a script that deletes only the caller's own key
    Redis(Loaded),
    /// Locks over several Redis masters as their authors describe them (RedLock)
    Redlock(Loaded),
    /// One of the three processes of a minimal lock server with openraft and HTTP, for `lockgate bench lock`
    OpenraftServer {
        /// Number of the process: 0 is the leader; 1 and 2 must listen before it starts
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(0..=2))]
        node: u64,
        /// Address of the HTTP API, as HOST:PORT
        #[arg(long)]
        clients: String,
        /// Address on which process 1 or 2 listens for the leader, as HOST:PORT
        #[arg(long, required_unless_present = "others", conflicts_with = "others")]
        listen: Option<String>,
        /// Addresses of processes 1 and 2, for process 0, as HOST:PORT,HOST:PORT
        #[arg(long, value_delimiter = ',')]
        others: Vec<String>,
        /// Log file, which is overwritten
        #[arg(long)]
        log: PathBuf,
    },
    /// Create many keys as fast as the servers accept them, and leave them
    Fill {
        /// Kind of the servers
        #[arg(value_enum)]
        kind: ServerKind,
        #[command(flatten)]
        servers: Servers,
        /// Number of keys
        #[arg(long, default_value_t = 1_000_000)]
        znodes: u64,
        /// Bytes of data of each key
        #[arg(long, default_value_t = 100)]
        data_bytes: usize,
        #[command(flatten)]
        output: Output,
    },
    /// Write to etcd without pauses, and report the longest times without a success
    EtcdGap {
        #[command(flatten)]
        servers: Servers,
        /// Number of writers, spread over the servers
        #[arg(long, default_value_t = 12)]
        writers: usize,
        /// Duration in seconds
        #[arg(long, default_value_t = 30)]
        seconds: u64,
    },
}

#[derive(Debug, Args)]
struct Servers {
    /// Addresses of the servers, as HOST:PORT, separated by commas
    #[arg(long = "server", value_delimiter = ',', required = true)]
    servers: Vec<String>,
}

#[derive(Debug, Args)]
struct Loaded {
    #[command(flatten)]
    servers: Servers,
    /// Workload of the clients
    #[arg(long, value_enum)]
    workload: Workload,
    /// A client that fails to acquire a Redis lock retries after a random time of at most this many
    /// milliseconds
    #[arg(long, default_value_t = 5)]
    retry_ms: u64,
    #[command(flatten)]
    pace: Pace,
}

/// Kind of the servers to fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ServerKind {
    Etcd,
    Redis,
}

/// Workload of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Workload {
    /// Acquire and release a lock of the client's own
    Lock,
    /// Acquire and release the same lock as all other clients
    Contended,
    /// Set the client's own key to new data
    Set,
    /// Read the client's own key
    Get,
    /// Create a new key each time
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

/// Parameters of one client.
#[derive(Debug, Clone)]
struct Task {
    workload: Workload,
    /// The client's own key, or the common one.
    key: String,
    data: Vec<u8>,
    retry: Duration,
    /// Time to live of locks and leases: longer than the load runs.
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
                "RedLock only has the workloads lock and contended"
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
            // An instrumented program writes its counts only when it exits normally.
            let mut terminated = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
            tokio::select! {
                served = serve => served,
                _ = terminated.recv() => Ok(()),
            }
        }
        Command::Fill {
            kind,
            servers,
            znodes,
            data_bytes,
            output,
        } => fill(kind, &servers, znodes, data_bytes).await?.print(output),
        Command::EtcdGap {
            servers,
            writers,
            seconds,
        } => {
            let report =
                gap::measure_gaps(EtcdWriters(servers), writers, Duration::from_secs(seconds)).await?;
            say(serde_json::to_string_pretty(&report).context("the report as JSON")?)
        }
    }
}

impl Servers {
    fn at(&self, number: usize) -> &str {
        &self.servers[number % self.servers.len()]
    }
}

/// Measures with each number of clients and prints the results as `lockgate bench` does.
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
                ttl: pace.duration + pace.warmup + Duration::from_secs(60),
            };
            callers.push(open(task, number).await.context("opening a client")?);
        }
        let drive = Drive {
            label: format!("{over} {}, {clients} clients", workload.name()),
            warmup: pace.warmup,
            measured: pace.duration,
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
        if !pace.output.is_document() {
            report::print_load(&report, reports.is_empty())?;
        }
        reports.push(report);
    }
    if pace.output.is_document() {
        pace.output.say(&reports, String::new)?;
    }
    report::require_no_errors(&reports)
}

/// Creates `keys` keys. Each client continues below its own prefix.
async fn fill(
    kind: ServerKind,
    servers: &Servers,
    keys: u64,
    data_bytes: usize,
) -> anyhow::Result<FillReport> {
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
            match kind {
                ServerKind::Etcd => create(etcd::Caller::open(&server, task).await?, &next, keys).await,
                ServerKind::Redis => create(redis::Caller::open(&server, task).await?, &next, keys).await,
            }
        }));
    }
    for filler in fillers {
        filler.await.context("a client")??;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_as_for_the_other_generators() {
        for line in [
            "redis --server 127.0.0.1:1 --workload lock --clients 16 --duration 4s --json",
            "redlock --server 127.0.0.1:1,127.0.0.1:2 --workload contended --seconds 4 --warmup 0 --json",
            "etcd --server 127.0.0.1:1 --workload set",
            "fill redis --server 127.0.0.1:1 --znodes 5",
            "etcd-gap --server 127.0.0.1:1",
        ] {
            let arguments = std::iter::once("bench-peers").chain(line.split(' '));
            let parsed = Cli::try_parse_from(arguments);
            assert!(parsed.is_ok(), "{line}: {:?}", parsed.err());
        }
    }
}
