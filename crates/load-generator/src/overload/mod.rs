//! Sustained overload: several times the load that the cluster can serve. Measures lost sessions, elections,
//! and the share of the capacity that is still served.

mod offered;

use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use cli_support::durations;
use cli_support::ensure_usage;
use cli_support::format::Output;
use cli_support::open_files;
use cli_support::output::say;
use serde::Serialize;
use tokio::task::LocalSet;

use self::offered::Offered;
use super::Target;
use super::bystanders::{BystanderReport, Bystanders, memory, peak_memory, term};
use super::load::Plan;
use super::report::{Percentiles, ms};

/// Open files beside the connections of the clients.
const OTHER_FILES: u64 = 256;

/// Minimum share of the intended load that has to be sent: with less there was no such overload.
const MIN_OFFERED: f64 = 0.9;

/// Options of `lockgate bench overload`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    /// Offered load as a multiple of the capacity
    #[arg(long, default_value_t = 3.0)]
    factor: f64,
    /// Duration of the overload
    #[arg(long, value_name = "TIME", alias = "seconds", default_value = "10min", value_parser = durations::seconds)]
    duration: Duration,
    /// Duration of the preceding measurement of the capacity
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = durations::seconds)]
    capacity_duration: Duration,
    /// Number of clients that measure the capacity, each in a closed loop
    #[arg(long, default_value_t = 256)]
    capacity_clients: usize,
    /// Number of connections that offer the load, each with a lock of its own
    #[arg(long, default_value_t = 3_000)]
    connections: usize,
    /// Number of sessions that only send heartbeats meanwhile
    #[arg(long, default_value_t = 200)]
    sessions: usize,
    /// TTL of these sessions
    #[arg(long, value_name = "TIME", default_value = "4s", value_parser = durations::seconds)]
    ttl: Duration,
    /// Minimum share of the capacity that has to be served
    #[arg(long, default_value_t = 0.8)]
    least_goodput: f64,
    /// Format of the result
    #[command(flatten)]
    output: Output,
}

/// Result of the measurement.
#[derive(Debug, Clone, Serialize)]
pub struct OverloadReport {
    /// Capacity: cycles of acquire and release per second in closed loops.
    pub capacity_per_second: f64,
    /// Intended acquires per second.
    pub wanted_per_second: f64,
    /// Sent acquires per second.
    pub offered_per_second: f64,
    /// Served cycles per second.
    pub goodput_per_second: f64,
    /// Served cycles as a share of the capacity.
    pub goodput: f64,
    /// Rejected acquires per second.
    pub refused_per_second: f64,
    /// Durations of served cycles.
    pub cycle: Percentiles,
    /// Durations of rejected acquires.
    pub refusal: Percentiles,
    /// Number of releases with a status other than 200, and of acquires with a status other than 200 and 503.
    pub errors: u64,
    /// Text of the first error.
    pub first_error: Option<String>,
    /// Observations of the sessions that only sent heartbeats.
    pub bystanders: BystanderReport,
    /// Number of elections: the increase of the term.
    pub elections: u64,
    /// For each node: its memory before, and its peak memory, in bytes.
    pub memory_bytes: Vec<(u64, u64)>,
}

/// Measures and prints the result.
pub async fn run(args: Arguments) -> anyhow::Result<()> {
    ensure_usage!(
        args.connections > 0 && args.capacity_clients > 0,
        "at least one connection is needed"
    );
    open_files::raise((args.connections + 2 * args.sessions + args.capacity_clients) as u64 + OTHER_FILES)?;
    let report = LocalSet::new().run_until(measure(&args)).await?;
    if args.output.is_document() {
        args.output.say(&report, String::new)?;
    } else {
        print(&report)?;
    }
    ensure!(
        report.bystanders.lost_sessions == 0,
        "sessions were lost in spite of their heartbeats"
    );
    ensure!(report.elections == 0, "there were elections");
    let first_error = report.first_error.as_deref().unwrap_or_default();
    ensure!(report.errors == 0, "requests failed unexpectedly: {first_error}");
    ensure!(
        report.offered_per_second >= MIN_OFFERED * report.wanted_per_second,
        "only {:.0} of {:.0} requests per second could be sent: this program needs more CPU time or more --connections",
        report.offered_per_second,
        report.wanted_per_second
    );
    ensure!(
        report.goodput >= args.least_goodput,
        "only {:.0} % of the capacity was served",
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
        "{} sessions lost, {} heartbeats retried, {} elections, {} errors",
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
        .context("this measurement needs a local cluster, for its memory and its term")?;
    let (nodes, pids) = (args.target.nodes()?, args.target.processes()?);
    let capacity = Plan::new(nodes.clone(), Duration::from_secs(2), args.capacity_duration);
    let capacity = capacity
        .lock_cycles(args.capacity_clients)
        .await?
        .operations_per_second;
    ensure!(capacity > 0.0, "nothing was served");

    let ttl = args.ttl;
    let bystanders = Bystanders::start(&nodes, args.sessions, ttl, None).await?;
    let offered = Offered::connect(&nodes, args.connections).await?;
    let (term_before, memory_before) = (term(&cluster).await?, memory(&pids)?);
    bystanders.take_report();
    let wanted = capacity * args.factor;
    let outcome = offered.run(wanted, args.duration).await?;
    let beside = bystanders.take_report();
    let elections = term(&cluster).await?.saturating_sub(term_before);
    let peaks = peak_memory(&pids)?;
    bystanders.stop().await?;
    let per_second = |count: u64| count as f64 / args.duration.as_secs_f64();
    let cycle = outcome.cycles.percentiles();
    let refusal = outcome.refusals.percentiles();
    Ok(OverloadReport {
        capacity_per_second: capacity,
        wanted_per_second: wanted,
        offered_per_second: per_second(outcome.sent),
        goodput_per_second: per_second(cycle.count),
        goodput: per_second(cycle.count) / capacity,
        refused_per_second: per_second(refusal.count),
        cycle,
        refusal,
        errors: outcome.errors,
        first_error: outcome.first_error,
        bystanders: beside,
        elections,
        memory_bytes: memory_before.into_iter().zip(peaks).collect(),
    })
}
