//! Loads of `lockgate bench`: every workload over every protocol, open loops, and gaps. Small loads that show
//! only that it measures: the speed of this machine does not matter.

use std::process::{Output, Stdio};

use serde_json::Value;
use tokio::process::Command;

use crate::harness::{LOCKGATE, TestCluster};

async fn bench(arguments: &[&str]) -> Output {
    Command::new(LOCKGATE)
        .arg("bench")
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap()
}

/// Returns the reports of a load of one second that must succeed.
async fn reports(arguments: &[&str]) -> Vec<Value> {
    let mut all = arguments.to_vec();
    all.extend(["--seconds", "1", "--warmup", "0", "--json"]);
    let output = bench(&all).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn addresses(cluster: &TestCluster, over: &str) -> String {
    let all: Vec<&str> = cluster
        .nodes()
        .map(|node| match over {
            "http" => node.http.as_str(),
            _ => node.zookeeper.as_deref().unwrap(),
        })
        .collect();
    all.join(",")
}

fn assert_valid_report(report: &Value, workload: &str, over: &str, clients: u64) {
    assert_eq!(report["workload"], workload, "{report}");
    assert_eq!(report["over"], over, "{report}");
    assert_eq!(report["clients"], clients, "{report}");
    assert_eq!(
        (&report["errors"], &report["first_error"]),
        (&0.into(), &Value::Null),
        "{report}"
    );
    assert!(
        report["operations_per_second"].as_f64().unwrap() > 0.0,
        "{report}"
    );
    let of = |name: &str| report["operation"][name].as_u64().unwrap();
    let latencies = ["p50_us", "p90_us", "p99_us", "p99_9_us", "max_us"].map(of);
    assert!(latencies.is_sorted() && latencies[4] > 0, "{report}");
    let locks = ["lock", "contended", "shared", "semaphore", "multi", "batch"].contains(&workload);
    assert_eq!(report["acquire"].is_object(), locks, "{report}");
}

const WORKLOADS: [&str; 9] = [
    "lock",
    "contended",
    "shared",
    "semaphore",
    "multi",
    "create",
    "set",
    "get",
    "mixed",
];

#[tokio::test]
async fn every_workload_runs_over_http_and_zookeepers_protocol() {
    let cluster = TestCluster::start().await;
    for (over, more) in [("http", &["batch"][..]), ("zookeeper", &[])] {
        let target = addresses(&cluster, over);
        for workload in WORKLOADS.iter().chain(more).copied() {
            let arguments = [workload, "--over", over, "--server", &target, "--clients", "6"];
            let reports = reports(&arguments).await;
            assert_eq!(reports.len(), 1);
            assert_valid_report(&reports[0], workload, over, 6);
            let hands_over = workload == "contended";
            assert_eq!(reports[0]["hand_over"].is_object(), hands_over, "{}", reports[0]);
        }
    }
    // Everything that was created has been removed.
    let top = cluster
        .send(
            1,
            "GET",
            "/v1/znodes/?children=true&linearizable=true",
            &Value::Null,
        )
        .await;
    let top = top.json().to_string();
    assert!(top.contains("locks") && !top.contains("lockgate-bench"), "{top}");
}

#[tokio::test]
async fn at_leader_connects_all_clients_to_the_leader() {
    let mut cluster = TestCluster::start().await;
    let leader = cluster.leader_now().await;
    let followers = cluster.followers().await;
    let (follower, other) = (followers[0], followers[1]);
    // A node without an answer is not the leader.
    cluster.kill(follower).await.unwrap();
    let target = addresses(&cluster, "http");
    let loads = reports(&["contended", "--server", &target, "--clients", "4", "--at-leader"]).await;
    assert_valid_report(&loads[0], "contended", "http", 4);
    assert_eq!(loads[0]["nodes"], 1, "{}", loads[0]);
    for (node, asked) in [(leader, true), (other, false)] {
        let metrics = cluster.send(node, "GET", "/metrics", &Value::Null).await;
        let metrics = String::from_utf8(metrics.body).unwrap();
        let acquires =
            |line: &str| line.starts_with("lockgate_http_requests_total") && line.contains("/acquire");
        assert_eq!(metrics.lines().any(acquires), asked, "node {node}");
    }
    let alone = bench(&["set", "--over", "zookeeper", "--server", &target, "--at-leader"]).await;
    let said = String::from_utf8_lossy(&alone.stderr);
    assert!(!alone.status.success() && said.contains("--at-leader"), "{said}");
}

#[tokio::test]
async fn open_loop_offers_the_requested_rate() {
    let cluster = TestCluster::start().await;
    let target = addresses(&cluster, "http");
    let loads = reports(&["set", "--server", &target, "--clients", "4", "--rate", "50"]).await;
    let report = &loads[0];
    assert_valid_report(report, "set", "http", 4);
    let offered = &report["offered"];
    // Every due operation counts, whether it was answered in time or never sent.
    assert_eq!(report["operation"]["count"], 50, "{report}");
    assert_eq!(offered["wanted_per_second"], 50.0);
    assert_eq!(offered["due_per_second"], 50.0);
}

#[tokio::test]
async fn gap_reports_the_longest_time_without_a_success() {
    let cluster = TestCluster::start().await;
    for over in ["http", "zookeeper"] {
        let target = addresses(&cluster, over);
        let arguments = [
            "gap",
            "--over",
            over,
            "--server",
            &target,
            "--writers",
            "3",
            "--seconds",
            "1",
            "--json",
        ];
        let output = bench(&arguments).await;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(report["writes"].as_u64().unwrap() > 0, "{report}");
        let gaps = report["gaps"].as_array().unwrap();
        assert_eq!(gaps[0]["ms"], report["longest_ms"], "{report}");
    }
}

#[tokio::test]
async fn fill_leaves_its_znodes() {
    let cluster = TestCluster::start().await;
    let target = addresses(&cluster, "zookeeper");
    let output = bench(&["fill", "--server", &target, "--znodes", "2500", "--json"]).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let path = "/v1/znodes/lockgate-bench-fill?descendants=true&linearizable=true";
    let made = cluster.send(2, "GET", path, &Value::Null).await;
    assert_eq!(made.json()["descendants"], 2503, "{}", made.json());
}
