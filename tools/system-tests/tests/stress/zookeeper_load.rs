//! Load generator for ZooKeeper's protocol: it measures, and leaves nothing behind.

use std::collections::BTreeSet;
use std::process::Stdio;

use local_cluster::process::send_signal;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::harness::{LOCKGATE, TestCluster, eventually};

fn load(cluster: &TestCluster, arguments: &[&str]) -> Child {
    let servers: Vec<&str> = cluster
        .nodes()
        .map(|node| node.zookeeper.as_deref().unwrap())
        .collect();
    // A background job of a shell ignores SIGINT, and the program would inherit that.
    Command::new("env")
        .args(["--default-signal=INT", LOCKGATE])
        .args(["bench", "zookeeper", "--json", "--server", &servers.join(",")])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// Returns the names of all top-level znodes and of all locks.
async fn names(cluster: &TestCluster) -> BTreeSet<String> {
    let reads = json!({"reads": [{"children": {"path": "/"}}, {"children": {"path": "/locks"}}]});
    let read = cluster
        .send(1, "POST", "/v1/read?linearizable=true", &reads)
        .await;
    assert_eq!(read.status, 200, "{}", read.json());
    let read = read.json();
    let found = |result: &Value| {
        result["children"]["children"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    let results = read["results"].as_array().unwrap();
    let names = results.iter().flat_map(found);
    names
        .map(|child| child["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn every_workload_is_measured_and_leaves_nothing_behind() {
    let cluster = TestCluster::start().await;
    let before = names(&cluster).await;
    let arguments = ["--clients", "1,5", "--seconds", "1", "--warmup", "0"];
    let output = load(&cluster, &arguments).wait_with_output().await.unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );

    let reports: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let measured: Vec<_> = reports
        .iter()
        .map(|report| {
            (
                report["workload"].as_str().unwrap(),
                report["clients"].as_u64().unwrap(),
            )
        })
        .collect();
    let workloads = ["create", "set", "get", "sequential", "lock"];
    let expected: Vec<_> = workloads
        .into_iter()
        .flat_map(|workload| [(workload, 1), (workload, 5)])
        .collect();
    assert_eq!(measured, expected);
    for report in &reports {
        let of = |name: &str| report["operation"][name].as_u64().unwrap();
        let latencies = ["p50_us", "p99_us", "p99_9_us", "max_us"].map(of);
        assert!(latencies.is_sorted() && latencies[0] > 0, "{report}");
        assert!(of("count") > 0 && report["operations_per_second"].as_f64().unwrap() > 0.0);
        assert_eq!(report["errors"], 0, "{report}");
    }
    assert_eq!(names(&cluster).await, before);
}

#[tokio::test]
async fn interrupted_load_leaves_nothing_behind() {
    let cluster = TestCluster::start().await;
    let before = names(&cluster).await;
    // Without the signal the load would run for an hour.
    let arguments = ["--clients", "3", "--seconds", "3600", "--workloads", "lock"];
    let load = load(&cluster, &arguments);
    let is_there = async || {
        let names = names(&cluster).await;
        names
            .iter()
            .filter(|name| name.starts_with("lockgate-bench-"))
            .count()
            >= 1
    };
    eventually("the load has begun", is_there).await;
    let process = Pid::from_raw(load.id().unwrap().cast_signed());
    send_signal(process, Signal::SIGINT).unwrap();

    let output = load.wait_with_output().await.unwrap();
    assert!(!output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "lockgate: interrupted\n");
    assert_eq!(names(&cluster).await, before);
}
