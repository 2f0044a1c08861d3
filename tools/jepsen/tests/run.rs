//! Tests of the whole program, from its command line to its report: a short cell with real processes.
//! They need the server's program, on which this crate does not depend; without it they print a message and
//! do nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const JEPSEN: &str = env!("CARGO_BIN_EXE_lockgate-jepsen");

/// Returns the server's program next to this test's.
fn lockgate() -> Option<PathBuf> {
    let beside = Path::new(JEPSEN).with_file_name("lockgate");
    beside.exists().then_some(beside)
}

/// Runs a cell; returns its report and whether the program's status was success.
fn run(arguments: &[&str]) -> Option<(Value, bool)> {
    let Some(lockgate) = lockgate() else {
        eprintln!("SKIPPED: lockgate was not built: cargo build -p lockgate");
        return None;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let output = Command::new(JEPSEN)
        .args(arguments)
        .args(["--seed", "5", "--quiet-seconds", "1"])
        .arg("--program")
        .arg(lockgate)
        .arg("--dir")
        .arg(dir.path())
        .arg("--report")
        .arg(dir.path().join("report"))
        .output()
        .expect("the program can be started");
    let text = std::fs::read_to_string(dir.path().join("report/report.json"));
    let text = text.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let report = serde_json::from_str(&text).expect("the report is JSON");
    Some((report, output.status.success()))
}

#[test]
fn cell_with_a_killed_leader_passes() {
    let arguments = [
        "--workload",
        "register",
        "--nemesis",
        "kill-leader",
        "--seconds",
        "3",
        "--least-rate",
        "30",
    ];
    let Some((report, fine)) = run(&arguments) else {
        return;
    };
    let cell = &report["cells"][0];
    assert_eq!(cell["outcome"], "passed", "{}", cell["reasons"]);
    assert!(fine);
    assert!(cell["faults"][0]["evidence"].is_string());
    assert!(!cell["checks"].as_array().expect("there are checks").is_empty());
}

#[test]
fn run_below_the_minimum_rate_is_invalid() {
    let arguments = [
        "--workload",
        "register",
        "--nemesis",
        "none",
        "--seconds",
        "1",
        "--least-rate",
        "1000000",
    ];
    let Some((report, fine)) = run(&arguments) else {
        return;
    };
    assert_eq!(report["cells"][0]["outcome"], "invalid");
    assert!(!fine);
}

#[test]
fn without_namespaces_impossible_cells_are_skipped_and_others_run() {
    let power = [
        "--workload",
        "set",
        "--nemesis",
        "power-cut-all",
        "--seconds",
        "1",
        "--no-namespaces",
    ];
    let Some((report, fine)) = run(&power) else { return };
    assert_eq!(report["cells"][0]["outcome"], "skipped");
    // A run without a passed cell proves nothing, and its status is no success.
    assert!(!fine);
    let cut = [
        "--workload",
        "register",
        "--nemesis",
        "isolate-leader",
        "--seconds",
        "3",
        "--no-namespaces",
    ];
    let Some((report, _)) = run(&[&cut[..], &["--least-rate", "30"]].concat()) else {
        return;
    };
    let cell = &report["cells"][0];
    assert_eq!(cell["outcome"], "passed", "{}", cell["reasons"]);
}
