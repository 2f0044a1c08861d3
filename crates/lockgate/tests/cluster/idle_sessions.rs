//! Sessions of `lockgate bench idle`: they are open at the requested servers, from the requested addresses
//! and for the requested time, and closed afterwards.

use std::collections::BTreeSet;
use std::process::Stdio;

use local_cluster::process::send_signal;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

use crate::command_line::fails;
use crate::harness::{LOCKGATE, TestCluster};

/// Process that keeps sessions open until it is interrupted.
struct Idle {
    process: Child,
    said: Lines<BufReader<ChildStderr>>,
}

impl Idle {
    /// Starts the process and waits until all sessions are open.
    async fn open(cluster: &TestCluster, arguments: &[&str]) -> Self {
        // A shell starts background processes with SIGINT ignored, and the program would inherit that.
        let mut process = Command::new("env")
            .args(["--default-signal=INT", LOCKGATE])
            .args(["bench", "idle", "--json", "--seconds", "3600", "--dir"])
            .arg(cluster.dir())
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut said = BufReader::new(process.stderr.take().unwrap()).lines();
        while let Some(line) = said.next_line().await.unwrap() {
            if line.ends_with("sessions are open") {
                return Self { process, said };
            }
        }
        panic!("the program ended before all sessions were open");
    }

    /// Interrupts the process. Returns its report and whether it succeeded.
    async fn interrupt(self) -> (Value, bool) {
        let process = Pid::from_raw(self.process.id().unwrap().cast_signed());
        send_signal(process, Signal::SIGINT).unwrap();
        self.ended().await
    }

    /// Waits until the process ends by itself. Returns its report and whether it succeeded.
    async fn ended(mut self) -> (Value, bool) {
        // A process that writes more than a pipe holds waits for its reader.
        while self.said.next_line().await.unwrap().is_some() {}
        let output = self.process.wait_with_output().await.unwrap();
        let report = serde_json::from_slice(&output.stdout).unwrap();
        (report, output.status.success())
    }
}

async fn sessions(cluster: &TestCluster) -> Vec<Value> {
    let listed = cluster.get(1, "/v1/sessions").await;
    listed["sessions"].as_array().unwrap().clone()
}

/// Returns the number of connections of ZooKeeper clients at each node.
async fn connections(cluster: &TestCluster) -> Vec<u64> {
    const LINE: &str = "lockgate_connections{door=\"zookeeper\"} ";
    let mut counts = Vec::new();
    for id in cluster.ids() {
        let metrics = cluster.send(id, "GET", "/metrics", &Value::Null).await;
        let metrics = String::from_utf8(metrics.body).unwrap();
        let count = metrics.lines().find_map(|line| line.strip_prefix(LINE));
        counts.push(count.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap());
    }
    counts
}

#[track_caller]
fn is_sound(report: &Value, over: &str, sessions: u64, servers: u64) {
    assert_eq!(report["over"], over, "{report}");
    assert_eq!(report["sessions"], sessions, "{report}");
    assert_eq!(report["servers"], servers, "{report}");
    assert!(report["opened_per_second"].as_f64().unwrap() > 0.0, "{report}");
    for memory in ["memory_before_bytes", "memory_bytes"] {
        assert_eq!(report[memory].as_array().map(Vec::len), Some(3), "{report}");
    }
}

#[tokio::test]
async fn zookeeper_sessions_have_the_requested_servers_and_addresses() {
    let cluster = TestCluster::start().await;
    let places = ["--sessions", "20", "--at", "2", "--from", "127.0.0.2,127.0.0.3"];
    let idle = Idle::open(&cluster, &places).await;
    assert_eq!(connections(&cluster).await, [0, 20, 0]);
    let there = sessions(&cluster).await;
    assert_eq!(there.len(), 20);
    let from: BTreeSet<_> = there
        .iter()
        .map(|session| session["address"].as_str().unwrap().split(':').next().unwrap())
        .collect();
    assert_eq!(from, BTreeSet::from(["127.0.0.2", "127.0.0.3"]));

    let (report, content) = idle.interrupt().await;
    assert!(content, "{report}");
    is_sound(&report, "zookeeper", 20, 1);
    assert_eq!(
        (&report["lost"], &report["opening"]["count"]),
        (&0.into(), &20.into()),
        "{report}"
    );
    assert_eq!(sessions(&cluster).await, Vec::<Value>::new());
}

#[tokio::test]
async fn http_sessions_keep_no_connections() {
    let cluster = TestCluster::start().await;
    let idle = Idle::open(&cluster, &["--sessions", "100", "--over", "http", "--locks", "2"]).await;
    assert_eq!(sessions(&cluster).await.len(), 100);
    let path = "/v1/locks?prefix=bench/idle&limit=1000&linearizable=true";
    let held = cluster.send(1, "GET", path, &Value::Null).await.json();
    let held = held["locks"].as_array().unwrap();
    assert_eq!(held.iter().filter(|lock| lock["holders"] == 1).count(), 200);
    assert_eq!(connections(&cluster).await, [0, 0, 0]);

    let (report, content) = idle.interrupt().await;
    assert!(content, "{report}");
    is_sound(&report, "http", 100, 3);
    assert_eq!(report["locks"], 2, "{report}");
    assert_eq!(sessions(&cluster).await, Vec::<Value>::new());
}

#[tokio::test]
async fn lost_session_ends_the_run_and_is_reported() {
    let cluster = TestCluster::start().await;
    let idle = Idle::open(&cluster, &["--sessions", "3"]).await;
    let id = sessions(&cluster).await[0]["session"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = format!("/v1/sessions/{id}");
    assert_eq!(cluster.send(1, "DELETE", &path, &Value::Null).await.status, 204);

    // The run of an hour ends as soon as a session is lost.
    let (report, content) = idle.ended().await;
    assert!(!content, "{report}");
    is_sound(&report, "zookeeper", 3, 3);
    assert_eq!(report["lost"], 1, "{report}");
    assert!(report["first_loss"].is_string(), "{report}");
    assert_eq!(sessions(&cluster).await, Vec::<Value>::new());
}

#[tokio::test]
async fn invalid_arguments_open_no_session() {
    let cluster = TestCluster::start().await;
    let dir = cluster.dir().to_str().unwrap();
    for (arguments, why) in [
        (["--at", "4"], "there is no server 4 among 3"),
        (["--sessions", "0"], "at least one session is needed"),
        (["--locks", "1"], "--locks requires --over http"),
    ] {
        let stderr = fails(&[&["bench", "idle", "--dir", dir], &arguments[..]].concat()).await;
        assert!(stderr.contains(why), "{stderr}");
    }
    assert_eq!(sessions(&cluster).await, Vec::<Value>::new());
}
