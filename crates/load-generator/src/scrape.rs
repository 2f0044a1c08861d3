//! What it costs to be watched: the same load with and without scrapes of all nodes, by turns, and what one scrape takes by itself.
//!
//! A machine is never as fast twice, so rounds of both kinds follow each other, and each round with scrapes is compared with
//! its neighbour without. The median of these quotients is what scraping leaves of the throughput; how far they lie apart says
//! what that is worth.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use cli_support::http_client::Connection;
use serde::Serialize;
use tokio::task::LocalSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::load::Plan;
use super::nodes::Nodes;
use super::report::{self, Durations, Percentiles, ms};
use super::{Target, processes};

/// Scrapes with nothing else to do, of which the cost of one is told.
const ALONE: u32 = 200;

/// A Prometheus that is not told otherwise scrapes so often; many are told 15 s.
const USUAL: Duration = Duration::from_secs(15);

/// What `lockgate bench scrape` is told.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    /// How many clients take locks meanwhile
    #[arg(long, default_value_t = 64)]
    clients: usize,
    /// How many rounds of each kind
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// How long a round is
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// How often every node is scraped in rounds with scrapes
    #[arg(long, default_value_t = 1000, value_name = "MS")]
    every_ms: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What came out.
#[derive(Debug, Serialize)]
struct Report {
    /// Bytes of one scrape.
    bytes: usize,
    /// How long one takes with nothing else to do.
    alone: Percentiles,
    /// The node's time on the processor for one, if it runs on this machine.
    cpu_us: Option<f64>,
    /// That as a part of one core, if it is scraped every 15 seconds.
    cpu_share_every_15_s: Option<f64>,
    /// Cycles per second in each round without scrapes, and in the one after it with them.
    rounds: Vec<Round>,
    /// The median of what scrapes have left of the throughput.
    throughput_with_scrapes: f64,
    /// How many scrapes there were in these rounds.
    scrapes: u64,
    /// How long they took beside the load.
    beside_load: Percentiles,
}

#[derive(Debug, Serialize)]
struct Round {
    without: f64,
    with: f64,
}

/// Measures, and prints what came out.
pub async fn run(args: Arguments) -> anyhow::Result<()> {
    ensure!(args.clients > 0, "at least one client is needed");
    ensure!(args.rounds > 0, "at least one round is needed");
    ensure!(args.seconds > 0, "at least one second is needed");
    ensure!(
        args.every_ms > 0,
        "at least a millisecond between scrapes is needed"
    );
    let report = LocalSet::new().run_until(measure(&args)).await?;
    match args.json {
        true => report::print_json(&report),
        false => print(&report, &args),
    }
}

async fn measure(args: &Arguments) -> anyhow::Result<Report> {
    let nodes = args.target.nodes()?;
    let load = Plan::new(
        nodes.clone(),
        Duration::from_secs(1),
        Duration::from_secs(args.seconds),
    );
    // Once for nothing: whatever grows with the first load has grown then.
    load.lock_cycles(args.clients).await?;
    let (bytes, alone, cpu_us) = alone(args, &nodes).await?;
    let mut rounds = Vec::new();
    let mut beside_load = Durations::new();
    for _ in 0..args.rounds {
        let without = load.lock_cycles(args.clients).await?;
        let scrape = scrape_all(&nodes, Duration::from_millis(args.every_ms), &mut beside_load);
        let with = tokio::select! {
            biased;
            with = load.lock_cycles(args.clients) => with?,
            failed = scrape => return Err(failed.expect_err("scraping only ends when it cannot go on")),
        };
        for report in [&without, &with] {
            ensure!(report.errors == 0, "{} requests failed", report.errors);
        }
        rounds.push(Round {
            without: without.operations_per_second,
            with: with.operations_per_second,
        });
    }
    let mut left: Vec<f64> = rounds.iter().map(|round| round.with / round.without).collect();
    left.sort_by(f64::total_cmp);
    let beside_load = beside_load.percentiles();
    Ok(Report {
        bytes,
        alone,
        cpu_us,
        cpu_share_every_15_s: cpu_us.map(|us| us / USUAL.as_micros() as f64),
        throughput_with_scrapes: left[left.len() / 2],
        rounds,
        scrapes: beside_load.count,
        beside_load,
    })
}

/// One scrape after the other, of one node: bytes, times, and the node's time on the processor for each.
async fn alone(args: &Arguments, nodes: &Nodes) -> anyhow::Result<(usize, Percentiles, Option<f64>)> {
    let mut connection = nodes.connect(0).await?;
    let process = args.target.processes()?.first().copied();
    let cpu = || process.map(processes::cpu_time).transpose();
    let before = cpu()?;
    let (mut times, mut bytes) = (Durations::new(), 0);
    for _ in 0..ALONE {
        let begin = Instant::now();
        bytes = scrape(&mut connection).await?;
        times.record(begin.elapsed());
    }
    let spent = cpu()?
        .zip(before)
        .map(|(after, before)| after.saturating_sub(before));
    let each_us = spent.map(|spent| spent.as_micros() as f64 / f64::from(ALONE));
    Ok((bytes, times.percentiles(), each_us))
}

async fn scrape(connection: &mut Connection) -> anyhow::Result<usize> {
    let response = connection.send("GET", "/metrics", "").await.context("scraping")?;
    let (status, bytes) = (response.status, response.body.len());
    ensure!(status == 200, "a scrape was answered {status}");
    Ok(bytes)
}

/// Scrapes every node again and again.
async fn scrape_all(nodes: &Nodes, every: Duration, times: &mut Durations) -> anyhow::Result<()> {
    let mut connections = Vec::new();
    for number in 0..nodes.count() {
        connections.push(nodes.connect(number).await?);
    }
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for connection in &mut connections {
            let begin = Instant::now();
            scrape(connection).await?;
            times.record(begin.elapsed());
        }
    }
}

fn print(report: &Report, args: &Arguments) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let mut text = format!(
        "one scrape: {} bytes, {} ms (p50), {} ms (p99)\n",
        report.bytes,
        ms(report.alone.p50_us),
        ms(report.alone.p99_us)
    );
    if let (Some(us), Some(share)) = (report.cpu_us, report.cpu_share_every_15_s) {
        text += &format!(
            "on the processor: {us:.0} µs each, {:.4} % of a core if it is every 15 s\n",
            share * 100.0
        );
    }
    text += &format!("\n{:>12} {:>12} {:>8}\n", "cycles/s", "scraped", "left");
    for round in &report.rounds {
        let left = round.with / round.without * 100.0;
        text += &format!("{:>12.0} {:>12.0} {left:>7.2} %\n", round.without, round.with);
    }
    text += &format!(
        "\nwith a scrape of every node each {} ms {:.2} % of the throughput is left (median); {} scrapes, {} ms (p50)\n",
        args.every_ms,
        report.throughput_with_scrapes * 100.0,
        report.scrapes,
        ms(report.beside_load.p50_us)
    );
    out.write_all(text.as_bytes())
        .context("writing to standard output")
}
