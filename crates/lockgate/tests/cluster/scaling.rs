//! Nodes without a vote, and small versions of what `lockgate bench watch`, `observers` and `limits` measure.

use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;

use crate::command_line::{Place, fails, succeeds};
use crate::harness::{LOCKGATE, TestCluster};

/// The clusters that a measurement makes for itself below a directory. It ends them, unless it is ended before.
struct Made(TempDir);

impl Made {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn dir(&self) -> PathBuf {
        self.0.path().join("made")
    }

    async fn measure(&self, arguments: &[&str]) -> Vec<Value> {
        let dir = self.dir();
        let arguments = [&["bench"], arguments, &["--json", "--dir", dir.to_str().unwrap()]].concat();
        serde_json::from_str(&succeeds(&arguments).await).unwrap()
    }

    fn clusters(&self) -> impl Iterator<Item = local_cluster::LocalCluster> {
        ["", "sessions", "watches", "locks"]
            .into_iter()
            .map(|name| self.dir().join(name))
            .filter_map(|dir| local_cluster::LocalCluster::open(&dir, LOCKGATE.as_ref()).ok())
    }

    #[track_caller]
    fn assert_ended(&self) {
        for cluster in self.clusters() {
            for id in cluster.ids() {
                assert_eq!(cluster.pid(id).unwrap(), None, "node {id} still runs");
            }
        }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        self.clusters().for_each(|mut cluster| cluster.kill_now());
    }
}

fn number(report: &Value, name: &str) -> f64 {
    let found = report.pointer(name).and_then(Value::as_f64);
    found.unwrap_or_else(|| panic!("no number {name} in {report}"))
}

#[tokio::test]
async fn a_new_cluster_may_have_observers() {
    let place = Place(TempDir::new().unwrap());
    let dir = place.path().to_str().unwrap();
    let up = ["cluster", "up", "--dir", dir, "--ephemeral-ports"];
    let shown = succeeds(&[&up[..], &["--nodes", "1", "--learners", "2"]].concat()).await;
    assert!(shown.contains("Started 3 of 3 nodes"), "{shown}");
    assert_eq!(shown.matches("learner").count(), 2, "{shown}");
    // Their number is for new ones; others have `cluster add`.
    let told = fails(&["cluster", "up", "--dir", dir, "--learners", "1"]).await;
    assert!(told.contains("cluster add"), "{told}");
}

#[tokio::test]
async fn every_watcher_is_told_of_every_change() {
    let cluster = TestCluster::start().await;
    let dir = cluster.dir().to_str().unwrap();
    for at_once in [&[][..], &["--at-once"]] {
        let arguments = [
            "bench",
            "watch",
            "--json",
            "--dir",
            dir,
            "--sessions",
            "1,25",
            "--seconds",
            "1",
            "--warmup",
            "0",
        ];
        let told = succeeds(&[&arguments, at_once].concat()).await;
        let reports: Vec<Value> = serde_json::from_str(&told).unwrap();
        for (report, sessions) in reports.iter().zip([1.0, 25.0]) {
            let changes = number(report, "/changes");
            assert!(changes >= 1.0, "{report}");
            assert_eq!(number(report, "/sessions"), sessions);
            assert_eq!(number(report, "/each/count"), changes * sessions, "{report}");
            let parts = ["first", "median", "last", "read"];
            let medians = parts.map(|part| number(report, &format!("/{part}/p50_us")));
            assert!(medians.is_sorted() && medians[0] > 0.0, "{report}");
        }
        assert_eq!(reports.len(), 2);
    }
    // It leaves nothing.
    let left = cluster
        .send(1, "GET", "/v1/znodes/?children=true", &Value::Null)
        .await;
    assert!(
        !String::from_utf8_lossy(&left.body).contains("lockgate-bench"),
        "{}",
        left.json()
    );
}

#[tokio::test]
async fn readers_and_watchers_are_served_by_who_has_no_vote() {
    let made = Made::new();
    let small = [
        "--writers",
        "2",
        "--writes",
        "20",
        "--readers",
        "4",
        "--reads",
        "200",
        "--watchers",
        "10",
    ];
    let short = [
        "--learners",
        "0,1",
        "--changes",
        "5",
        "--seconds",
        "1",
        "--warmup",
        "0",
    ];
    let reports = made
        .measure(&[&["observers"], &small[..], &short[..]].concat())
        .await;
    let stages: Vec<_> = reports
        .iter()
        .map(|report| {
            (
                report["learners"].as_u64().unwrap(),
                report["beside"].as_str().unwrap(),
            )
        })
        .collect();
    let beside = ["nothing", "get", "http", "watch"];
    let expected: Vec<_> = [0, 1]
        .into_iter()
        .flat_map(|learners| beside.map(|beside| (learners, beside)))
        .collect();
    assert_eq!(stages, expected);
    for report in &reports {
        assert!(number(report, "/writes_per_second") > 0.0, "{report}");
        assert_eq!(
            number(report, "/served_per_second") > 0.0,
            report["beside"] != "nothing",
            "{report}"
        );
        assert_eq!(
            report["lag_at_most"].is_u64(),
            report["learners"] == 1,
            "{report}"
        );
    }
    made.assert_ended();
}

#[tokio::test]
async fn what_nodes_keep_is_counted_step_by_step() {
    let made = Made::new();
    let steps = [
        "--sessions",
        "20,60",
        "--watches",
        "100,2500",
        "--locks",
        "10,300",
    ];
    let reports = made
        .measure(&[&["limits", "--seconds", "3", "--ttl-ms", "6000"], &steps[..]].concat())
        .await;
    let counts: Vec<_> = reports
        .iter()
        .map(|report| {
            (
                report["kept"].as_str().unwrap(),
                report["count"].as_u64().unwrap(),
            )
        })
        .collect();
    let expected = [
        ("sessions", 20),
        ("sessions", 60),
        ("watches", 100),
        ("watches", 2_500),
        ("locks", 10),
        ("locks", 300),
    ];
    assert_eq!(counts, expected);
    for report in &reports {
        assert_eq!(report["memory_bytes"].as_array().map(Vec::len), Some(3));
        assert!(number(report, "/cycle/count") > 0.0, "{report}");
        assert_eq!(
            number(report, "/heartbeats_per_second") > 0.0,
            report["kept"] == "sessions",
            "{report}"
        );
    }
    made.assert_ended();
}
