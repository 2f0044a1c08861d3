//! New local cluster with learners, and a small run of `lockgate bench watch`.

use serde_json::Value;
use tempfile::TempDir;

use crate::command_line::{LaunchedCluster, fails, succeeds};
use crate::harness::TestCluster;

fn number(report: &Value, name: &str) -> f64 {
    let found = report.pointer(name).and_then(Value::as_f64);
    found.unwrap_or_else(|| panic!("no number {name} in {report}"))
}

#[tokio::test]
async fn new_cluster_can_have_observers() {
    let place = LaunchedCluster(TempDir::new().unwrap());
    let dir = place.path().to_str().unwrap();
    let up = ["cluster", "up", "--dir", dir, "--ephemeral-ports"];
    let shown = succeeds(&[&up[..], &["--nodes", "1", "--learners", "2"]].concat()).await;
    assert!(shown.contains("Started 3 of 3 nodes"), "{shown}");
    assert_eq!(shown.matches("learner").count(), 2, "{shown}");
    // The option is for new clusters; existing ones have `member add`.
    let stderr = fails(&["cluster", "up", "--dir", dir, "--learners", "1"]).await;
    assert!(stderr.contains("member add"), "{stderr}");
}

#[tokio::test]
async fn every_watcher_is_notified_of_every_change() {
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
        let stderr = succeeds(&[&arguments, at_once].concat()).await;
        let reports: Vec<Value> = serde_json::from_str(&stderr).unwrap();
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
    // The benchmark leaves no znodes.
    let left = cluster
        .send(1, "GET", "/v1/znodes/?children=true", &Value::Null)
        .await;
    assert!(
        !String::from_utf8_lossy(&left.body).contains("lockgate-bench"),
        "{}",
        left.json()
    );
}
