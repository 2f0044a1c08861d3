//! Output of measurements: tables for people, JSON for programs. docs/reference/bench.md explains each field of a
//! load's report.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use serde::Serialize;

use super::drive::{Drive, DriveResult};

/// Precision of the histograms: more digits than repeated runs agree on.
const SIGNIFICANT_DIGITS: u8 = 3;

/// Percentiles of durations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// Number of durations.
    pub count: u64,
    /// 50th percentile, in microseconds.
    pub p50_us: u64,
    /// 90th percentile, in microseconds.
    pub p90_us: u64,
    /// 99th percentile, in microseconds.
    pub p99_us: u64,
    /// 99.9th percentile, in microseconds.
    pub p99_9_us: u64,
    /// Maximum, in microseconds.
    pub max_us: u64,
}

/// Histogram of durations.
#[derive(Debug, Clone)]
pub struct Durations(Histogram<u64>);

impl Durations {
    /// Creates an empty histogram.
    pub fn new() -> Self {
        // It grows with its largest value, so that no latency is cut off.
        Self(Histogram::new(SIGNIFICANT_DIGITS).expect("three digits are within the histogram's bounds"))
    }

    /// Adds a duration.
    pub fn record(&mut self, duration: Duration) {
        let microseconds = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX / 2);
        self.0
            .record(microseconds)
            .expect("the histogram grows as needed");
    }

    /// Adds all durations of another histogram.
    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("the histogram grows as needed");
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the percentiles.
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

/// Load that an open loop has offered.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Offered {
    /// Requested operations per second.
    pub wanted_per_second: f64,
    /// Operations per second that were due.
    pub due_per_second: f64,
    /// Number of operations that were sent late because all clients were busy.
    pub late_for_want_of_clients: u64,
    /// Number of operations that were due and never sent. They count with the time for which they had waited
    /// by the end.
    pub not_sent: u64,
    /// Maximum delay caused by this program although a client was free, in microseconds.
    pub generator_late_us_max: u64,
}

/// Description of a load.
#[derive(Debug, Clone)]
pub struct Subject<'a> {
    /// Name of the workload.
    pub workload: &'a str,
    /// Protocol to the servers.
    pub over: &'a str,
    /// Number of servers.
    pub nodes: usize,
    /// Number of clients.
    pub clients: usize,
}

/// Result of one load.
#[derive(Debug, Clone, Serialize)]
pub struct LoadReport {
    /// Name of the workload.
    pub workload: String,
    /// Protocol to the servers: `http`, `zookeeper`, `process`, or another server's protocol.
    pub over: String,
    /// Number of clients.
    pub clients: usize,
    /// Number of nodes.
    pub nodes: usize,
    /// Duration of the measurement in seconds.
    pub seconds: f64,
    /// Operations per second that ended during the measurement. An operation is one iteration of the
    /// workload.
    pub operations_per_second: f64,
    /// Durations of operations, from the first byte of the first request to the last byte of the last
    /// response; in an open loop from the due time.
    pub operation: Percentiles,
    /// Times from the same beginning to the grant; only of workloads that acquire locks.
    pub acquire: Option<Percentiles>,
    /// Durations of hand-overs, from the first byte of a release to the last byte of the next grant; only of
    /// workloads with one lock for all clients.
    pub hand_over: Option<Percentiles>,
    /// Load that an open loop has offered.
    pub offered: Option<Offered>,
    /// Number of failed operations. Each failure ended its client.
    pub errors: u64,
    /// Text of the first failure.
    pub first_error: Option<String>,
    /// CPU time of this program per operation in microseconds, which the servers could not use if they share
    /// the machine. `None` if the servers are part of this program.
    pub client_cpu_us: Option<f64>,
    /// CPU time of all servers together per operation in microseconds, if their processes are known.
    pub nodes_cpu_us: Option<f64>,
}

impl LoadReport {
    /// Creates the report of a load.
    pub fn new(subject: &Subject, drive: &Drive, driven: &DriveResult) -> Self {
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

/// Formats microseconds as milliseconds.
pub fn ms(us: u64) -> String {
    format!("{:.2}", us as f64 / 1000.0)
}

/// Returns the heading of the table of loads.
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

/// Formats the additional line of an open loop.
fn offered(offered: &Offered) -> String {
    format!(
        "           offered {:.0}/s; {} sent late because no client was free, {} not sent; delay of this program at most {} ms",
        offered.due_per_second,
        offered.late_for_want_of_clients,
        offered.not_sent,
        ms(offered.generator_late_us_max)
    )
}

/// Prints one line of the table, preceded by the heading for the first one.
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

/// Fails if a load had errors, so that scripts do not use its results.
pub fn require_no_errors(reports: &[LoadReport]) -> anyhow::Result<()> {
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
    fn percentiles_match_the_recorded_durations() {
        let mut some = Durations::new();
        for ms in 1..=1000 {
            some.record(Duration::from_millis(ms));
        }
        let found = some.percentiles();
        assert_eq!((found.count, some.count()), (1000, 1000));
        // Three digits of precision.
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
