//! Tests of a few short seeds, each in a process of its own: the report of a run, and the repetition of a
//! seed. `.ci/run` runs long ones, and the seeds that once found a violation.

use std::process::Command;

use lockgate_sim::run::Report;
use lockgate_sim::stalls::Elections;

/// Steps of a short run: several elections, snapshots and faults, in some seconds.
const SHORT: u64 = 6_000;

fn run(seed: u64, steps: u64) -> Report {
    run_with(seed, steps, &[])
}

fn run_with(seed: u64, steps: u64, more: &[&str]) -> Report {
    let output = Command::new(env!("CARGO_BIN_EXE_lockgate-sim"))
        .args([
            "--seed",
            &seed.to_string(),
            "--steps",
            &steps.to_string(),
            "--json",
        ])
        .args(more)
        .output()
        .expect("the simulation can be started");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        let said = String::from_utf8_lossy(&output.stderr);
        panic!("seed {seed} gave no report ({error}): {said}")
    })
}

fn assert_covered(report: &Report) {
    assert_eq!(report.violation, None, "{}", report.reproduce());
    assert_eq!(report.is_idle(), None, "{}", report.reproduce());
}

#[test]
fn short_runs_have_no_violation() {
    let reports: Vec<Report> = (1..=4).map(|seed| run(seed, SHORT)).collect();
    reports.iter().for_each(assert_covered);
    // Together they have checked all important items.
    let sum = |of: fn(&Report) -> u64| reports.iter().map(of).sum::<u64>();
    for seen in [
        sum(|report| report.coverage.holds),
        sum(|report| report.coverage.expired),
        sum(|report| report.coverage.snapshots),
        sum(|report| report.coverage.fired),
        sum(|report| report.struck.iter().map(|(_, times)| times).sum()),
    ] {
        assert!(seen > 0, "{reports:#?}");
    }
}

#[test]
fn node_with_an_older_disk_is_rejected_without_other_violations() {
    let mut reports = (9..30).map(|seed| run(seed, SHORT)).inspect(assert_covered);
    let refused = reports.find(|report| report.coverage.refused > 0);
    let coverage = refused
        .expect("a disk is rolled back in one of the runs")
        .coverage;
    assert_eq!(coverage.refused, coverage.rolled_back);
}

#[test]
fn same_seed_repeats_the_run() {
    let (one, other) = (run(7, SHORT), run(7, SHORT));
    assert_eq!(one.trace, other.trace);
    assert_eq!((one.steps, one.simulated_ms), (other.steps, other.simulated_ms));
    let logged = run_with(7, SHORT, &["--log"]);
    assert_eq!(one.trace, logged.trace, "the log changes nothing");
    assert_ne!(one.trace, run(8, SHORT).trace, "another seed is another run");
}

#[test]
fn stalls_depose_no_leader_and_a_killed_leader_is_replaced_at_once() {
    for seed in 1..=3 {
        let output = Command::new(env!("CARGO_BIN_EXE_lockgate-sim"))
            .args(["--seed", &seed.to_string(), "--stalls", "60"])
            .output()
            .expect("the simulation can be started");
        let elections: Elections = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            let said = String::from_utf8_lossy(&output.stderr);
            panic!("seed {seed} gave no report ({error}): {said}")
        });
        let again = format!("cargo run --profile checked -p lockgate-sim -- --seed {seed} --stalls 60");
        assert_eq!(elections.violation, None, "{elections:?}\n{again}");
        assert!(elections.stalls > 50, "{elections:?}");
    }
}
