//! How measurements are printed: tables for people, JSON for programs. docs/bench.md tells what each field of a load's report means.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use serde::Serialize;

use super::drive::{Drive, Driven};

/// Three significant digits: more than repeated runs agree on.
const SIGNIFICANT_DIGITS: u8 = 3;

/// The percentiles of a number of durations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// How many durations there were.
    pub count: u64,
    /// Half of them took no longer, in microseconds.
    pub p50_us: u64,
    /// 90 % of them took no longer.
    pub p90_us: u64,
    /// 99 % of them took no longer.
    pub p99_us: u64,
    /// 99.9 % of them took no longer.
    pub p99_9_us: u64,
    /// The longest.
    pub max_us: u64,
}

/// Durations as they come in.
#[derive(Debug, Clone)]
pub struct Durations(Histogram<u64>);

impl Durations {
    /// None yet.
    pub fn new() -> Self {
        // Grows with its largest value, so that no latency is cut off.
        Self(Histogram::new(SIGNIFICANT_DIGITS).expect("three digits are within the histogram's bounds"))
    }

    /// One more.
    pub fn record(&mut self, duration: Duration) {
        let microseconds = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX / 2);
        self.0
            .record(microseconds)
            .expect("the histogram grows as needed");
    }

    /// Those of another series too.
    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("the histogram grows as needed");
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// What they come to.
    pub fn percentiles(&self) -> Percentiles {
        Percentiles {
            count: self.0.len(),
            p50_us: self.0.value_at_quantile(0.5),
            p90_us: self.0.value_at_quantile(0.9),
            p99_us: self.0.value_at_quantile(0.99),
            p99_9_us: self.0.value_at_quantile(0.999),
            max_us: self.0.max(),
        }
    }
}

impl Default for Durations {
    fn default() -> Self {
        Self::new()
    }
}

/// What an open loop has offered.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Offered {
    /// Operations in a second that were asked for.
    pub wanted_per_second: f64,
    /// Operations in a second that were due.
    pub due_per_second: f64,
    /// Operations that were sent late, because all clients had one under way.
    pub late_for_want_of_clients: u64,
    /// Operations that were due and not sent by the end. They count with the time for which they had waited by then.
    pub not_sent: u64,
    /// How late this program itself was at most, where a client was free, in microseconds.
    pub generator_late_us_max: u64,
}

/// Whom a load was put on, and how its operations are called.
#[derive(Debug, Clone)]
pub struct Subject<'a> {
    /// What the clients did.
    pub workload: &'a str,
    /// How they reached the servers.
    pub over: &'a str,
    /// How many servers there were.
    pub nodes: usize,
    /// How many clients.
    pub clients: usize,
}

/// What one load came to.
#[derive(Debug, Clone, Serialize)]
pub struct LoadReport {
    /// What the clients did.
    pub workload: String,
    /// How they reached the servers: `http`, `zookeeper`, `process`, or another server's protocol.
    pub over: String,
    /// How many clients.
    pub clients: usize,
    /// On how many nodes.
    pub nodes: usize,
    /// For how long it was measured.
    pub seconds: f64,
    /// Operations that ended in that time, per second. An operation is all that the workload does in one go.
    pub operations_per_second: f64,
    /// From the first byte of an operation's first request to the last of its last answer; in an open loop from when it was due.
    pub operation: Percentiles,
    /// The same until the lock was granted; of workloads that take locks.
    pub acquire: Option<Percentiles>,
    /// From the first byte of a release to the last of the next one's grant; of workloads with one lock for all.
    pub hand_over: Option<Percentiles>,
    /// What an open loop has offered.
    pub offered: Option<Offered>,
    /// Operations that failed. Each ended its client.
    pub errors: u64,
    /// What the first of them failed of.
    pub first_error: Option<String>,
    /// Time on the processor that this program spent on one operation, in microseconds: what the servers did not have of a
    /// machine that they share with it. None where the servers are in this program.
    pub client_cpu_us: Option<f64>,
    /// The same of all servers together, where their processes are known.
    pub nodes_cpu_us: Option<f64>,
}

impl LoadReport {
    /// What driving came to.
    pub fn new(subject: &Subject, drive: &Drive, driven: &Driven) -> Self {
        let some = |durations: &Durations| (durations.count() > 0).then(|| durations.percentiles());
        let each = |spent: Duration| spent.as_secs_f64() * 1e6 / driven.ended.max(1) as f64;
        Self {
            workload: subject.workload.to_owned(),
            over: subject.over.to_owned(),
            clients: subject.clients,
            nodes: subject.nodes,
            seconds: drive.measured.as_secs_f64(),
            operations_per_second: driven.ended as f64 / drive.measured.as_secs_f64(),
            operation: driven.operations.percentiles(),
            acquire: some(&driven.grants),
            hand_over: some(&driven.hand_overs),
            offered: driven.offered.clone(),
            errors: driven.errors,
            first_error: driven.first_error.clone(),
            client_cpu_us: Some(each(driven.cpu)),
            nodes_cpu_us: driven.processes_cpu.map(each),
        }
    }
}

/// Microseconds as milliseconds, for people.
pub fn ms(us: u64) -> String {
    format!("{:.2}", us as f64 / 1000.0)
}

/// The heading of the table of loads.
fn heading() -> String {
    format!(
        "{:<10} {:<9} {:>7} {:>12} {:>9} {:>9} {:>9} {:>9} {:>11} {:>12} {:>13} {:>12} {:>7}",
        "workload",
        "over",
        "clients",
        "operations/s",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "max ms",
        "acquire p50",
        "hand-over p50",
        "client CPU us",
        "nodes CPU us",
        "errors"
    )
}

fn line(report: &LoadReport) -> String {
    let p50 = |of: Option<Percentiles>| of.map_or("-".to_owned(), |of| ms(of.p50_us));
    let us = |of: Option<f64>| of.map_or("-".to_owned(), |us| format!("{us:.1}"));
    format!(
        "{:<10} {:<9} {:>7} {:>12.0} {:>9} {:>9} {:>9} {:>9} {:>11} {:>13} {:>13} {:>12} {:>7}",
        report.workload,
        report.over,
        report.clients,
        report.operations_per_second,
        ms(report.operation.p50_us),
        ms(report.operation.p99_us),
        ms(report.operation.p99_9_us),
        ms(report.operation.max_us),
        p50(report.acquire),
        p50(report.hand_over),
        us(report.client_cpu_us),
        us(report.nodes_cpu_us),
        report.errors
    )
}

/// What there is to say of an open loop beside its latencies.
fn offered(offered: &Offered) -> String {
    format!(
        "           offered {:.0}/s; {} sent late because no client was free, {} not sent at all; this program late by {} ms at most",
        offered.due_per_second,
        offered.late_for_want_of_clients,
        offered.not_sent,
        ms(offered.generator_late_us_max)
    )
}

/// Prints one line of the table, with the heading before the first.
pub fn print_load(report: &LoadReport, first: bool) -> anyhow::Result<()> {
    let mut text = String::new();
    if first {
        text += &heading();
        text.push('\n');
    }
    text += &line(report);
    text.push('\n');
    if let Some(of) = &report.offered {
        text += &offered(of);
        text.push('\n');
    }
    io::stdout()
        .lock()
        .write_all(text.as_bytes())
        .context("writing to standard output")
}

/// Prints anything as JSON.
pub fn print_json(report: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(report).context("the report as JSON")?;
    writeln!(io::stdout().lock(), "{text}").context("writing to standard output")
}

/// A measurement with errors is one, but a script should not take it for a good one.
pub fn refuse_errors(reports: &[LoadReport]) -> anyhow::Result<()> {
    let errors: u64 = reports.iter().map(|report| report.errors).sum();
    let first = reports.iter().find_map(|report| report.first_error.as_deref());
    anyhow::ensure!(
        errors == 0,
        "{errors} operations failed, the first one: {}",
        first.unwrap_or("unknown")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_what_came_in() {
        let mut some = Durations::new();
        for ms in 1..=1000 {
            some.record(Duration::from_millis(ms));
        }
        let found = some.percentiles();
        assert_eq!((found.count, some.count()), (1000, 1000));
        // Three digits are kept.
        for (found, expected) in [
            (found.p50_us, 500_000),
            (found.p90_us, 900_000),
            (found.p99_us, 990_000),
            (found.p99_9_us, 999_000),
            (found.max_us, 1_000_000),
        ] {
            assert!(found.abs_diff(expected) <= expected / 1000, "{found} {expected}");
        }
    }
}
