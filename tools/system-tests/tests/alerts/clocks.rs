//! Wrong wall clocks, by libfaketime.

use std::fs;
use std::path::{Path, PathBuf};

use local_cluster::START_TIMEOUT;
use serde_json::json;

use super::job;
use super::prometheus::Prometheus;
use crate::harness::{TestCluster, eventually};
use crate::scrape::Scrape;

/// Alerts that these tests raise.
pub const ALERTS: &[&str] = &["LockgateClockWrong"];

const JOB: &str = "lockgate-clocks";

/// Environment variable that makes a missing libfaketime an error.
const REQUIRED_VARIABLE: &str = "LOCKGATE_FAKETIME";

/// Returns the path of libfaketime for programs with threads, if it is installed.
fn library() -> Option<PathBuf> {
    let architectures = fs::read_dir("/usr/lib").ok()?.flatten();
    let mut places = architectures.map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"));
    let found = places.find(|place| place.exists());
    if found.is_none() {
        let required = std::env::var(REQUIRED_VARIABLE).is_ok_and(|value| value == "required");
        assert!(!required, "libfaketime is not installed (Debian: faketime)");
        println!("skipped: libfaketime is not installed (Debian: faketime)");
    }
    found
}

/// Offset of a node's wall clock, which libfaketime reads from a file.
struct FakeClock {
    library: PathBuf,
    file: PathBuf,
}

impl FakeClock {
    fn new(library: PathBuf, dir: &Path, ahead: &str) -> Self {
        let file = dir.join("clock");
        let clock = Self { library, file };
        clock.set(ahead);
        clock
    }

    /// Sets the clock. The file is renamed into place, so that the node never reads a partial file.
    fn set(&self, ahead: &str) {
        let new = self.file.with_extension("new");
        fs::write(&new, format!("{ahead}\n")).unwrap();
        fs::rename(&new, &self.file).unwrap();
    }

    /// Starts a node with this clock. Its monotonic clock stays correct.
    async fn start(&self, cluster: &mut TestCluster, id: u64) {
        let environment = [
            ("LD_PRELOAD", self.library.to_str().unwrap()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.to_str().unwrap()),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ];
        cluster.start_with(id, &environment).unwrap();
        cluster.wait_ready(&[id], START_TIMEOUT).await.unwrap();
    }
}

#[tokio::test]
async fn clock_that_jumps_is_counted_once_and_fires_an_alert() {
    let Some(library) = library() else { return };
    let mut cluster = TestCluster::start().await;
    let id = cluster.followers().await[0];
    cluster.kill(id).await.unwrap();
    let clock = FakeClock::new(library, cluster.dir(), "+0");
    clock.start(&mut cluster, id).await;
    let jumps = async || {
        Scrape::of(&cluster, id)
            .await
            .value("lockgate_wall_clock_jumps_total")
    };
    assert!(jumps().await < 0.5);
    let prometheus = Prometheus::start(&[job(JOB, &cluster)]).await;
    if let Some(prometheus) = &prometheus {
        prometheus.wait_scraped("count(lockgate_ready)==3").await;
        prometheus.wait_scraped("count(ALERTS)").await;
        let firing = prometheus.firing().await;
        let alert = (JOB.to_owned(), ALERTS[0].to_owned());
        assert!(!firing.contains(&alert), "no alert before the jump: {firing:?}");
    }
    // The state has a time only after its first change.
    create(&cluster, id, "a").await;
    clock.set("-60d");
    eventually("the node detects the jump", async || jumps().await > 0.5).await;
    let seen = Scrape::of(&cluster, id).await;
    let days = seen.value("lockgate_state_time_ahead_seconds") / 86_400.0;
    assert!((59.9..60.1).contains(&days), "{days}");
    if let Some(prometheus) = &prometheus {
        prometheus.wait_for(JOB, ALERTS[0]).await;
    }
    assert!(jumps().await < 1.5, "one jump is counted");
}

/// Creates a znode; returns its creation time as text, whose order is that of time.
async fn create(cluster: &TestCluster, id: u64, path: &str) -> String {
    let path = format!("/v1/znodes/{path}");
    let made = cluster.send(id, "POST", &path, &json!({ "data": "x" })).await;
    assert_eq!(made.status, 201, "{}", made.json());
    let at = made.json()["stat"]["created_at"].clone();
    at.as_str().expect("a time").to_owned()
}

#[tokio::test]
async fn leader_that_starts_with_a_wrong_clock_stamps_the_time_of_the_others() {
    let Some(library) = library() else { return };
    for (name, ahead) in [("ahead", "+60d"), ("behind", "-60d")] {
        let mut cluster = TestCluster::start().await;
        let first = cluster.leader_now().await;
        let before = create(&cluster, first, "before").await;
        let id = cluster.followers().await[0];
        cluster.kill(id).await.unwrap();
        let clock = FakeClock::new(library.clone(), cluster.dir(), ahead);
        clock.start(&mut cluster, id).await;
        eventually("the node with the wrong clock leads", async || {
            let to = json!({ "node_id": id });
            // Rejected or without effect while the node is not up to date.
            cluster.send(first, "POST", "/v1/cluster/leader", &to).await;
            cluster.leader_now().await == id
        })
        .await;
        let at = create(&cluster, id, name).await;
        assert!(at > before, "the time is still {before}");
        // Read at the node with the correct clock.
        cluster.get(first, &format!("/v1/znodes/{name}")).await;
        let seen = Scrape::of(&cluster, first).await;
        let ahead_s = seen.value("lockgate_state_time_ahead_seconds");
        assert!(ahead_s < 60.0, "the state is {ahead_s} s ahead");
        let shown = Scrape::of(&cluster, id)
            .await
            .value("lockgate_wall_clock_timestamp_seconds");
        let right = seen.value("lockgate_wall_clock_timestamp_seconds");
        assert!(
            (shown - right).abs() > 59.0 * 86_400.0,
            "the leader's own clock is wrong"
        );
        for node in [first, id] {
            eventually("the alarm is raised", async || {
                let seen = cluster
                    .send(node, "GET", "/v1/cluster", &json!(null))
                    .await
                    .json();
                let alarms = seen["alarms"].as_array().cloned().unwrap_or_default();
                alarms
                    .iter()
                    .any(|alarm| alarm["kind"] == "clock_wrong" && alarm["node_id"] == id)
            })
            .await;
        }
    }
}
