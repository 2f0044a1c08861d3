//! Throughput and latency of three Lockgate nodes and of three ZooKeeper servers, under the same clients.
//!
//! ```sh
//! cargo build --release -p lockgate
//! cargo run -p zookeeper-parity --example side_by_side
//! ```
//!
//! The two take turns on this machine, each with empty data on the disk of the directory in which this is run, and are asked by
//! `lockgate bench zookeeper`. Before it is measured each gets a load of all workloads, because Java is slow until it has
//! compiled what is used. What is printed are medians over the rounds. This program itself only starts, waits and counts.

mod table;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use tempfile::TempDir;
use tokio::process::Command;
use zookeeper_parity::ensemble::Ensemble;
use zookeeper_parity::server::Installation;

use table::{Report, Series};

/// Clients and seconds of the load that goes before a measurement.
const WARM_UP: [&str; 6] = ["--clients", "16", "--seconds", "4", "--warmup", "0"];

/// What this is told.
#[derive(Debug, Parser)]
struct Arguments {
    /// The program to measure, and to measure with (`target/release/lockgate` beside this one if not given)
    #[arg(long)]
    lockgate: Option<PathBuf>,
    /// How often both are measured
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How long each workload is measured with each number of clients
    #[arg(long, default_value_t = 8)]
    seconds: u64,
    /// How long it runs before that
    #[arg(long, default_value_t = 2)]
    warmup: u64,
    /// How many clients, one number after the other
    #[arg(long, default_value = "1,16,64")]
    clients: String,
    /// Which workloads, one after the other
    #[arg(long, default_value = "create,set,get,sequential,lock")]
    workloads: String,
    /// The most memory of Java's heap, for each server
    #[arg(long, default_value_t = 512)]
    heap_megabytes: u32,
    /// Keep what each round said, as JSON, in this file
    #[arg(long)]
    json: Option<PathBuf>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    // What is started ends when it is dropped, and so also when this is interrupted.
    tokio::select! {
        done = compare(Arguments::parse()) => done,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            bail!("interrupted")
        }
    }
}

async fn compare(arguments: Arguments) -> Result<()> {
    let installation = Installation::find().context("there is no ZooKeeper to compare with")?;
    let lockgate = match &arguments.lockgate {
        Some(given) => given.clone(),
        None => beside_this()?,
    };
    let here = env::current_dir()?;
    let mut series = [Series::new("Lockgate"), Series::new("ZooKeeper")];
    for round in 1..=arguments.rounds {
        let cluster = Cluster::start(&lockgate, &here).await?;
        let reports = measure(&lockgate, &arguments, &cluster.target()?).await?;
        series[0].add(round, reports)?;
        drop(cluster);

        let ensemble = Ensemble::start(&installation, &here, arguments.heap_megabytes)?;
        let addresses: Vec<String> = ensemble.addresses().map(|address| address.to_string()).collect();
        let target = ["--servers".to_owned(), addresses.join(",")];
        let reports = measure(&lockgate, &arguments, &target).await?;
        series[1].add(round, reports)?;
        series[1].name = format!("ZooKeeper {}", ensemble.version());
    }
    if let Some(file) = &arguments.json {
        let text = serde_json::to_string_pretty(&series)?;
        std::fs::write(file, text).with_context(|| file.display().to_string())?;
    }
    table::print(&series)
}

/// The program that a release build has put next to where this one lies: `target/*/examples/side_by_side`.
fn beside_this() -> Result<PathBuf> {
    let own = env::current_exe()?;
    let target = own
        .ancestors()
        .nth(3)
        .context("this program lies in no target directory")?;
    let lockgate = target.join("release/lockgate");
    ensure!(
        lockgate.exists(),
        "{} is not there: `cargo build --release -p lockgate` makes it",
        lockgate.display()
    );
    Ok(lockgate)
}

/// Runs the load, first without and then with a look at what comes out.
async fn measure(lockgate: &Path, arguments: &Arguments, target: &[String]) -> Result<Vec<Report>> {
    bench(lockgate, arguments, target, &WARM_UP).await?;
    let (seconds, warmup) = (arguments.seconds.to_string(), arguments.warmup.to_string());
    let how = [
        "--clients",
        &arguments.clients,
        "--seconds",
        &seconds,
        "--warmup",
        &warmup,
    ];
    bench(lockgate, arguments, target, &how).await
}

async fn bench(
    lockgate: &Path,
    arguments: &Arguments,
    target: &[String],
    how: &[&str],
) -> Result<Vec<Report>> {
    let output = Command::new(lockgate)
        .args([
            "bench",
            "zookeeper",
            "--json",
            "--workloads",
            &arguments.workloads,
        ])
        .args(target)
        .args(how)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("running {}", lockgate.display()))?;
    ensure!(output.status.success(), "the load ended with {}", output.status);
    serde_json::from_slice(&output.stdout).context("the report of the load")
}

/// Three nodes with the settings of `lockgate cluster up`. Its processes and files end with this value.
struct Cluster {
    lockgate: PathBuf,
    directory: TempDir,
}

impl Cluster {
    async fn start(lockgate: &Path, under: &Path) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("lockgate-").tempdir_in(under)?;
        let cluster = Self {
            lockgate: lockgate.to_owned(),
            directory,
        };
        let started = Command::new(lockgate)
            .args(["cluster", "up", "--ephemeral-ports"])
            .args(cluster.target()?)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .await
            .with_context(|| format!("running {}", lockgate.display()))?;
        ensure!(started.success(), "the cluster did not start");
        Ok(cluster)
    }

    /// How the program is told which cluster is meant.
    fn target(&self) -> Result<[String; 2]> {
        let directory = self.directory.path().to_str();
        let directory = directory.context("the path of this directory is not UTF-8")?;
        Ok(["--dir".to_owned(), directory.to_owned()])
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let stopped = std::process::Command::new(&self.lockgate)
            .args(["cluster", "down", "--dir"])
            .arg(self.directory.path())
            .stdout(Stdio::null())
            .status();
        if !stopped.is_ok_and(|status| status.success()) {
            eprintln!(
                "a cluster could not be stopped; its directory was {}",
                self.directory.path().display()
            );
        }
    }
}
