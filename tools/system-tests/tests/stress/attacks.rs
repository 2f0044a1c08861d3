//! Small versions of `lockgate bench overload` and `lockgate bench attack`: a cluster with far too much load,
//! or with malicious requests, continues to serve its well-behaved clients.

use std::process::Stdio;

use load_generator::attack::Attack;
use serde_json::Value;
use tokio::process::Command;

use crate::harness::{LOCKGATE, TestCluster};

/// Runs a measurement; returns its report. The report's own verdict is ignored: the speed of a busy machine,
/// and its pauses of an election's length, are not the subject of these tests.
async fn measure(cluster: &TestCluster, arguments: &[&str]) -> Value {
    let output = Command::new(LOCKGATE)
        .arg("bench")
        .args(arguments)
        .arg("--json")
        .arg("--dir")
        .arg(cluster.dir())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        let told = String::from_utf8_lossy(&output.stderr);
        panic!("{error}: {} {told}", String::from_utf8_lossy(&output.stdout))
    })
}

/// Asserts that there were no errors; if the machine paused and the leader changed, some are expected.
#[track_caller]
fn assert_served(report: &Value, errors: &Value) {
    assert!(errors == 0 || report["elections"] != 0, "{report}");
}

/// Asserts that each node's log output grew by at most what the report allows: a megabyte a minute, of which that of ten seconds may come
/// at once.
#[track_caller]
fn assert_log_is_bounded(report: &Value) {
    let bytes = |when: &str| report[when]["log"].as_array().unwrap().clone();
    for (before, after) in bytes("before").iter().zip(bytes("after")) {
        let grown = after.as_u64().unwrap() - before.as_u64().unwrap();
        let seconds = report["seconds"].as_f64().unwrap().max(10.0);
        assert!(grown as f64 <= seconds / 60.0 * 1e6, "{report}");
    }
}

#[tokio::test]
async fn overloaded_cluster_keeps_sessions_and_grants_locks() {
    // With this low limit of pending proposals a small load is an overload.
    let cluster = TestCluster::start_with("[load]\nmax_outstanding = 8\n").await;
    let arguments = [
        "overload",
        "--seconds",
        "5",
        "--capacity-duration",
        "2s",
        "--capacity-clients",
        "6",
    ];
    let more = [
        "--connections",
        "300",
        "--sessions",
        "20",
        "--factor",
        "5",
        "--ttl",
        "12s",
    ];
    let report = measure(&cluster, &[&arguments[..], &more[..]].concat()).await;
    assert_eq!(report["bystanders"]["lost_sessions"], 0, "{report}");
    assert_served(&report, &report["errors"]);
    assert!(report["cycle"]["count"].as_u64().unwrap() > 0, "{report}");
    assert!(report["refusal"]["count"].as_u64().unwrap() > 0, "{report}");
    assert!(
        report["bystanders"]["heartbeat"]["count"].as_u64().unwrap() > 0,
        "{report}"
    );
}

#[tokio::test]
async fn well_behaved_clients_are_served_beside_every_attack() {
    let settings = "[http]\nmax_connections = 400\nmax_connections_per_address = 200\n\
                    [zookeeper]\nmax_connections_per_address = 50\n\
                    [load]\nsession_openings_per_second = 20\nsession_openings_at_once = 200\n";
    let cluster = TestCluster::start_with(settings).await;
    let arguments = [
        "attack",
        "--seconds",
        "3",
        "--connections",
        "450",
        "--watches",
        "3000",
        "--clients",
        "3",
    ];
    let reports = measure(&cluster, &arguments).await;
    let reports = reports.as_array().unwrap();
    // All attacks but those that need TLS or a Redis port, and the baseline.
    assert_eq!(reports.len(), Attack::all().len() - 1, "{reports:?}");
    for report in reports {
        let seen = &report["bystanders"];
        assert_eq!(seen["lost_sessions"], 0, "{report}");
        assert_served(report, &seen["errors"]);
        assert!(seen["cycle"]["count"].as_u64().unwrap() > 0, "{report}");
        assert_log_is_bounded(report);
    }
    let of = |attack: &str| reports.iter().find(|report| report["attack"] == attack).unwrap();
    let count =
        |attack: &str, answer: &str| of(attack)["got"]["answers"][answer].as_u64().unwrap_or_default();
    // An attack proves something only if it reaches its target.
    for held in ["slow-http", "slow-bodies", "idle", "unread", "streams", "feed"] {
        assert!(of(held)["got"]["let_in"].as_u64().unwrap() > 0, "{}", of(held));
    }
    assert!(count("large-bodies", "413") > 0 && of("large-bodies")["got"]["let_in"] == 0);
    assert!(count("deep-paths", "400") > 0 && of("deep-paths")["got"]["let_in"] == 0);
    assert!(count("refusals", "404") > 0 && of("refusals")["got"]["let_in"] == 0);
    assert!(count("lookups", "404") > 0, "{}", of("lookups"));
    assert!(count("feed", "429") > 0, "{}", of("feed"));
    for served in [
        "large-session",
        "lists",
        "request-ids",
        "holds",
        "lock-znodes",
        "waits",
        "queue",
        "closed-locks",
    ] {
        assert!(
            of(served)["got"]["let_in"].as_u64().unwrap() > 0,
            "{}",
            of(served)
        );
    }
    assert!(count("sessions", "429") > 0, "{}", of("sessions"));
    assert_eq!(of("watches")["got"]["let_in"], 3_000);
}
