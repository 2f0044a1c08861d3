//! Sustained overload: several times as many requests as the cluster can serve. Whether heartbeats keep their sessions,
//! whether the leader stays, and how much of its capacity the cluster still turns into locks.

mod offered;

use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use cli_support::ensure_usage;
use cli_support::open_files;
use cli_support::output::say;
use serde::Serialize;
use tokio::task::LocalSet;

use self::offered::Offered;
use super::Target;
use super::bystanders::{Bystanders, Seen, memory, peak_memory, term};
use super::load::Plan;
use super::report::{self, Percentiles, ms};

/// What this program opens beside the connections of its clients.
const OTHER_FILES: u64 = 256;

/// What has to be sent at least of what was to be sent: with less there was no such overload.
const LEAST_OFFERED: f64 = 0.9;

/// What `lockgate bench overload` is told.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    /// How many times the capacity is offered
    #[arg(long, default_value_t = 3.0)]
    factor: f64,
    /// For how long
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// How long the capacity is measured before that
    #[arg(long, default_value_t = 10)]
    capacity_seconds: u64,
    /// How many clients measure it, each in a closed loop
    #[arg(long, default_value_t = 256)]
    capacity_clients: usize,
    /// How many connections offer the load, each with a lock of its own
    #[arg(long, default_value_t = 3_000)]
    connections: usize,
    /// How many sessions only send heartbeats beside it
    #[arg(long, default_value_t = 200)]
    sessions: usize,
    /// These sessions' ttl in milliseconds
    #[arg(long, default_value_t = 4_000)]
    ttl_ms: u64,
    /// What part of the capacity has to be served
    #[arg(long, default_value_t = 0.8)]
    least_goodput: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What it came to.
#[derive(Debug, Clone, Serialize)]
pub struct OverloadReport {
    /// Cycles of acquire and release in a second that were served before, in closed loops.
    pub capacity_per_second: f64,
    /// Acquires in a second that were to be sent.
    pub wanted_per_second: f64,
    /// Acquires in a second that were sent.
    pub offered_per_second: f64,
    /// Cycles in a second that were served.
    pub goodput_per_second: f64,
    /// The same as a part of the capacity.
    pub goodput: f64,
    /// Acquires in a second that were refused.
    pub refused_per_second: f64,
    /// Cycles that were served.
    pub cycle: Percentiles,
    /// Acquires that were refused.
    pub refusal: Percentiles,
    /// Releases that were answered with anything but 200; and acquires with anything but 200 and 503.
    pub errors: u64,
    /// What the first of these was told.
    pub first_error: Option<String>,
    /// What those saw who only sent heartbeats.
    pub bystanders: Seen,
    /// How many elections there were: by how much the term has grown.
    pub elections: u64,
    /// Of each node: its memory before, and the most that it had, in bytes.
    pub memory_bytes: Vec<(u64, u64)>,
}

/// Measures, and prints what came out.
pub async fn run(args: Arguments) -> anyhow::Result<()> {
    ensure_usage!(
        args.seconds > 0 && args.capacity_seconds > 0,
        "at least one second is needed"
    );
    ensure_usage!(
        args.connections > 0 && args.capacity_clients > 0,
        "at least one connection is needed"
    );
    open_files::raise((args.connections + 2 * args.sessions + args.capacity_clients) as u64 + OTHER_FILES)?;
    let report = LocalSet::new().run_until(measure(&args)).await?;
    if args.json {
        report::print_json(&report)?;
    } else {
        print(&report)?;
    }
    ensure!(
        report.bystanders.lost_sessions == 0,
        "sessions with heartbeats were lost"
    );
    ensure!(report.elections == 0, "there were elections");
    let told = report.first_error.as_deref().unwrap_or_default();
    ensure!(report.errors == 0, "requests failed that must not: {told}");
    ensure!(
        report.offered_per_second >= LEAST_OFFERED * report.wanted_per_second,
        "only {:.0} of {:.0} requests in a second could be sent: this program needs more of the machine, or more --connections",
        report.offered_per_second,
        report.wanted_per_second
    );
    ensure!(
        report.goodput >= args.least_goodput,
        "only {:.0} % of the capacity were served",
        report.goodput * 100.0
    );
    Ok(())
}

fn print(report: &OverloadReport) -> anyhow::Result<()> {
    say(format!(
        "capacity {:.0}/s, offered {:.0}/s, served {:.0}/s ({:.0} %), refused {:.0}/s",
        report.capacity_per_second,
        report.offered_per_second,
        report.goodput_per_second,
        report.goodput * 100.0,
        report.refused_per_second
    ))?;
    for (what, times) in [
        ("cycles that were served", &report.cycle),
        ("refusals", &report.refusal),
        ("heartbeats", &report.bystanders.heartbeat),
    ] {
        say(format!(
            "{what}: p50 {} ms, p99 {} ms, max {} ms",
            ms(times.p50_us),
            ms(times.p99_us),
            ms(times.max_us)
        ))?;
    }
    say(format!(
        "{} sessions lost, {} heartbeats tried again, {} elections, {} errors",
        report.bystanders.lost_sessions, report.bystanders.heartbeats_again, report.elections, report.errors
    ))?;
    for (node, (before, most)) in report.memory_bytes.iter().enumerate() {
        say(format!(
            "node {}: {} MiB before, at most {} MiB",
            node + 1,
            before >> 20,
            most >> 20
        ))?;
    }
    Ok(())
}

async fn measure(args: &Arguments) -> anyhow::Result<OverloadReport> {
    let cluster = args
        .target
        .local()?
        .context("it needs a cluster on this machine, for its memory and its term")?;
    let (nodes, pids) = (args.target.nodes()?, args.target.processes()?);
    let seconds = Duration::from_secs(args.capacity_seconds);
    let capacity = Plan::new(nodes.clone(), Duration::from_secs(2), seconds);
    let capacity = capacity
        .lock_cycles(args.capacity_clients)
        .await?
        .operations_per_second;
    ensure!(capacity > 0.0, "nothing was served");

    let ttl = Duration::from_millis(args.ttl_ms);
    let bystanders = Bystanders::start(&nodes, args.sessions, ttl, None).await?;
    let offered = Offered::connect(&nodes, args.connections).await?;
    let (term_before, memory_before) = (term(&cluster).await?, memory(&pids)?);
    bystanders.look();
    let wanted = capacity * args.factor;
    let seconds = Duration::from_secs(args.seconds);
    let seen = offered.run(wanted, seconds).await?;
    let beside = bystanders.look();
    let elections = term(&cluster).await?.saturating_sub(term_before);
    let peaks = peak_memory(&pids)?;
    bystanders.stop().await?;
    let per_second = |count: u64| count as f64 / seconds.as_secs_f64();
    let cycle = seen.cycles.percentiles();
    let refusal = seen.refusals.percentiles();
    Ok(OverloadReport {
        capacity_per_second: capacity,
        wanted_per_second: wanted,
        offered_per_second: per_second(seen.sent),
        goodput_per_second: per_second(cycle.count),
        goodput: per_second(cycle.count) / capacity,
        refused_per_second: per_second(refusal.count),
        cycle,
        refusal,
        errors: seen.errors,
        first_error: seen.first_error,
        bystanders: beside,
        elections,
        memory_bytes: memory_before.into_iter().zip(peaks).collect(),
    })
}
