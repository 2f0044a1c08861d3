//! Runs of many seeds, each in a process of its own: random numbers are global to a process, and each seed
//! needs fresh memory.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use serde::de::DeserializeOwned;

use crate::run::Report;
use crate::stalls::Elections;
use crate::stopwatch::Stopwatch;
use crate::time::MILLI;

/// Results of many seeds.
#[derive(Debug, Default)]
pub struct Summary {
    reports: Vec<Report>,
    failed: Vec<String>,
    took_s: f64,
    jobs: usize,
}

/// Runs seeds with their numbers of steps, several at a time, and prints each failure at once.
pub fn run(seeds: impl IntoIterator<Item = (u64, u64)>, jobs: usize) -> io::Result<Summary> {
    let queue: Mutex<VecDeque<(u64, u64)>> = Mutex::new(seeds.into_iter().collect());
    let total = queue
        .lock()
        .expect("no thread panics while it holds the lock")
        .len();
    let summary = Mutex::new(Summary {
        jobs,
        ..Summary::default()
    });
    let began = Stopwatch::start();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let next = queue
                        .lock()
                        .expect("no thread panics while it holds the lock")
                        .pop_front();
                    let Some((seed, steps)) = next else { return };
                    let ran = child(seed, steps, None);
                    let mut summary = summary.lock().expect("no thread panics while it holds the lock");
                    summary.add(seed, steps, ran);
                    let done = summary.reports.len() + summary.failed.len();
                    if done.is_multiple_of(20) {
                        eprintln!("{done} of {total} seeds, {:.0} s", began.elapsed_s());
                    }
                }
            });
        }
    });
    let mut summary = summary
        .into_inner()
        .expect("no thread panicked while it held the lock");
    summary.took_s = began.elapsed_s();
    Ok(summary)
}

/// Runs a seed in a process of its own, optionally with a planted bug. An error explains why there is no
/// report.
pub fn child(seed: u64, steps: u64, bug: Option<u8>) -> Result<Report, String> {
    report(
        &[
            "--seed",
            &seed.to_string(),
            "--steps",
            &steps.to_string(),
            "--json",
        ],
        bug,
    )
}

/// Runs a seed with stalling nodes for this number of simulated seconds, like [`child`].
pub fn stalls(seed: u64, seconds: u64, bug: Option<u8>) -> Result<Elections, String> {
    report(
        &["--seed", &seed.to_string(), "--stalls", &seconds.to_string()],
        bug,
    )
}

fn report<T: DeserializeOwned>(arguments: &[&str], bug: Option<u8>) -> Result<T, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    if let Some(bug) = bug {
        command.args(["--planted", &bug.to_string()]);
    }
    let output = command
        .args(arguments)
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| error.to_string())?;
    // A run that found a violation reports it, and exits with an error.
    serde_json::from_slice(&output.stdout).map_err(|error| {
        let said = String::from_utf8_lossy(&output.stderr);
        format!(
            "it exited with {} without a report ({error}): {said}",
            output.status
        )
    })
}

impl Summary {
    fn add(&mut self, seed: u64, steps: u64, ran: Result<Report, String>) {
        match ran {
            Ok(report) => {
                let idle = report.is_idle().map(|why| format!("the run is invalid: {why}"));
                if let Some(problem) = report.violation.clone().or(idle) {
                    let text = format!("seed {seed}: {problem}\n  {}", report.reproduce());
                    eprintln!("{text}");
                    self.failed.push(text);
                }
                self.reports.push(report);
            }
            Err(why) => {
                let text = format!("seed {seed} with {steps} steps: {why}");
                eprintln!("{text}");
                self.failed.push(text);
            }
        }
    }

    /// Returns the failures.
    pub fn failed(&self) -> &[String] {
        &self.failed
    }

    /// Prints the summary.
    pub fn print(&self) {
        let sum = |of: fn(&Report) -> u64| self.reports.iter().map(of).sum::<u64>();
        let steps = sum(|report| report.steps);
        println!(
            "{} seeds, {} of them failed: {steps} steps in {:.0} s ({:.0} steps/s with {} processes), {:.0} s simulated",
            self.reports.len(),
            self.failed.len(),
            self.took_s,
            steps as f64 / self.took_s.max(0.001),
            self.jobs,
            sum(|report| report.simulated_ms) as f64 / 1000.0,
        );
        println!(
            "  {} leaders, {} entries applied, {} positions, {} acknowledged calls, {} holds, {} leases, \
         {} holds ended by their maximum time, {} sessions expired, \
             {} watches fired, {} states from snapshots, {} disks rolled back, {} nodes rejected for it",
            sum(|report| report.coverage.leaders),
            sum(|report| report.coverage.applied),
            sum(|report| report.coverage.positions),
            sum(|report| report.coverage.acknowledged),
            sum(|report| report.coverage.holds),
            sum(|report| report.coverage.leases),
            sum(|report| report.coverage.ended_by_bound),
            sum(|report| report.coverage.expired),
            sum(|report| report.coverage.fired),
            sum(|report| report.coverage.snapshots),
            sum(|report| report.coverage.rolled_back),
            sum(|report| report.coverage.refused),
        );
        let mut struck = BTreeMap::new();
        for (kind, times) in self.reports.iter().flat_map(|report| &report.struck) {
            *struck.entry(kind).or_insert(0) += times;
        }
        let struck: Vec<String> = struck
            .iter()
            .map(|(kind, times)| format!("{kind} {times}"))
            .collect();
        println!("  faults: {}", struck.join(", "));
        let endings = || self.reports.iter().filter_map(|report| report.ending);
        print_times(
            "a healthy majority served",
            endings().map(|ending| ending.served_after),
        );
        print_times(
            "all agreed after the last repair",
            endings().map(|ending| ending.agreed_after),
        );
    }
}

fn print_times(what: &str, times: impl Iterator<Item = u64>) {
    let mut times: Vec<u64> = times.map(|micros| micros / MILLI).collect();
    times.sort_unstable();
    let Some(longest) = times.last() else { return };
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!(
        "  {what}: p50 {} ms, p99 {} ms, at most {longest} ms",
        at(50),
        at(99)
    );
}
