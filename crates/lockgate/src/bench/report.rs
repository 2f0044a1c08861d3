//! How measurements are printed: tables for people, JSON for programs.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use serde::Serialize;

/// Three significant digits: more than repeated runs agree on.
const SIGNIFICANT_DIGITS: u8 = 3;

/// The percentiles of a number of durations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// How many durations there were.
    pub count: u64,
    /// Half of them took no longer, in microseconds.
    pub p50_us: u64,
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

    /// What they come to.
    pub fn percentiles(&self) -> Percentiles {
        Percentiles {
            count: self.0.len(),
            p50_us: self.0.value_at_quantile(0.5),
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

/// What one load came to.
#[derive(Debug, Clone, Serialize)]
pub struct LoadReport {
    /// Which workload.
    pub workload: &'static str,
    /// How many clients.
    pub clients: usize,
    /// On how many nodes.
    pub nodes: usize,
    /// For how long it was measured.
    pub seconds: f64,
    /// Acquired and released in that time, per second.
    pub cycles_per_second: f64,
    /// From the first byte of the acquire to the last of the release's answer.
    pub cycle: Percentiles,
    /// The acquire alone.
    pub acquire: Percentiles,
    /// Requests that got anything else than 200.
    pub errors: u64,
}

/// Microseconds as milliseconds, for people.
pub fn ms(us: u64) -> String {
    format!("{:.2}", us as f64 / 1000.0)
}

/// Prints one line of the table, with the heading before the first.
pub fn print_load(report: &LoadReport, first: bool) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if first {
        writeln!(
            out,
            "{:<10} {:>7} {:>10} {:>9} {:>9} {:>9} {:>9} {:>12} {:>7}",
            "workload",
            "clients",
            "cycles/s",
            "p50 ms",
            "p99 ms",
            "p99.9 ms",
            "max ms",
            "acquire p50",
            "errors"
        )
        .context("writing to standard output")?;
    }
    writeln!(
        out,
        "{:<10} {:>7} {:>10.0} {:>9} {:>9} {:>9} {:>9} {:>12} {:>7}",
        report.workload,
        report.clients,
        report.cycles_per_second,
        ms(report.cycle.p50_us),
        ms(report.cycle.p99_us),
        ms(report.cycle.p99_9_us),
        ms(report.cycle.max_us),
        ms(report.acquire.p50_us),
        report.errors
    )
    .context("writing to standard output")
}

/// Prints anything as JSON.
pub fn print_json(report: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(report).context("the report as JSON")?;
    writeln!(io::stdout().lock(), "{text}").context("writing to standard output")
}
