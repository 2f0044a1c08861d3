//! What the rounds came to: medians, as a table. Nothing here measures.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// One line of what `lockgate bench zookeeper` says: one workload with one number of clients.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    workload: String,
    clients: usize,
    operations_per_second: f64,
    operation: Percentiles,
    client_cpu_us: f64,
}

/// In microseconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Percentiles {
    p50_us: u64,
    p99_us: u64,
    p99_9_us: u64,
    max_us: u64,
}

/// All rounds of one side.
#[derive(Debug, Serialize)]
pub struct Series {
    /// Whose.
    pub name: String,
    rounds: Vec<Vec<Report>>,
}

impl Series {
    /// None yet.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            rounds: Vec::new(),
        }
    }

    /// One more round, whose throughput is shown at once.
    pub fn add(&mut self, round: usize, reports: Vec<Report>) -> Result<()> {
        for report in &reports {
            eprintln!(
                "round {round}, {}: {} with {} clients: {:.0}/s",
                self.name, report.workload, report.clients, report.operations_per_second
            );
        }
        self.rounds.push(reports);
        Ok(())
    }

    /// The median over the rounds of one figure of one line.
    fn median(&self, line: usize, figure: impl Fn(&Report) -> f64) -> Result<f64> {
        let figures: Option<Vec<f64>> = self
            .rounds
            .iter()
            .map(|round| round.get(line).map(&figure))
            .collect();
        median(figures.context("a round has fewer lines than another")?).context("there was no round")
    }
}

fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    let (above, below) = (
        *figures.get(figures.len() / 2)?,
        *figures.get(figures.len().checked_sub(1)? / 2)?,
    );
    Some((below + above) / 2.0)
}

/// Prints the medians of both, as Markdown.
pub fn print(series: &[Series; 2]) -> Result<()> {
    let [ours, theirs] = series;
    println!(
        "Medians of {} rounds; each first {}, then {}; latencies in ms.\n",
        ours.rounds.len(),
        ours.name,
        theirs.name
    );
    println!("| workload | clients | operations/s | times | p50 | p99 | p99.9 | max |");
    println!("|---|---:|---:|---:|---:|---:|---:|---:|");
    for (line, report) in ours.rounds.first().into_iter().flatten().enumerate() {
        let rate = |report: &Report| report.operations_per_second;
        let (our_rate, their_rate) = (ours.median(line, rate)?, theirs.median(line, rate)?);
        let mut row = format!(
            "| {} | {} | {our_rate:.0}, {their_rate:.0} | {:.2} |",
            report.workload,
            report.clients,
            our_rate / their_rate
        );
        let latencies: [fn(&Percentiles) -> u64; 4] =
            [|of| of.p50_us, |of| of.p99_us, |of| of.p99_9_us, |of| of.max_us];
        for latency in latencies {
            let ms = |report: &Report| latency(&report.operation) as f64 / 1_000.0;
            row += &format!(
                " {:.2}, {:.2} |",
                ours.median(line, ms)?,
                theirs.median(line, ms)?
            );
        }
        println!("{row}");
    }
    Ok(())
}
