//! Loss of a whole cluster, and its restore from a backup.

use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use cli_support::http_client::Connection;
use local_cluster::START_TIMEOUT;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::harness::{LOCKGATE, TestCluster, assert_refused, eventually};

async fn snapshot(arguments: &[&str]) -> Output {
    Command::new(LOCKGATE)
        .arg("snapshot")
        .args(arguments)
        .output()
        .await
        .expect("the program can be run")
}

async fn succeeds(arguments: &[&str]) -> String {
    let output = snapshot(arguments).await;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail. Returns the one line of its error.
async fn fails(arguments: &[&str]) -> String {
    let output = snapshot(arguments).await;
    assert!(!output.status.success(), "{arguments:?} succeeded");
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

async fn inspected(file: &str) -> Value {
    let text = succeeds(&["inspect", file, "--json", "--list", "locks", "--list", "sessions"]).await;
    serde_json::from_str(&text).unwrap()
}

/// Writes to a node until `stop` is set, and records the acknowledged writes.
async fn write(node: String, writer: usize, acknowledged: Arc<Mutex<Vec<String>>>, stop: Arc<AtomicBool>) {
    let mut connection = Connection::connect(&node).await.expect("the node lives");
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let path = format!("/load/{writer}-{number}");
        let body = json!({ "data": path, "parents": true }).to_string();
        let response = connection
            .send("POST", &format!("/v1/znodes{path}"), &body)
            .await
            .expect("the node lives");
        assert_eq!(response.status, 201, "{}", response.json());
        acknowledged.lock().unwrap().push(path);
    }
}

async fn status(cluster: &TestCluster, node: u64) -> Value {
    let response = cluster.send(node, "GET", "/v1/cluster", &Value::Null).await;
    response.json()
}

async fn position(cluster: &TestCluster, node: u64) -> u64 {
    status(cluster, node).await["applied_zxid"].as_u64().unwrap()
}

#[tokio::test]
async fn lost_cluster_is_restored_from_its_backup() {
    let mut cluster = TestCluster::start_with("[snapshots]\nevery_entries = 100\nkeep_entries = 20").await;
    let place = TempDir::new().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let file = path("backup");

    let (mut holder, held_by) = cluster.session(1, "holder").await;
    let before = holder.acquire(held_by.id(), "orders/1").await.unwrap();
    let sequential = json!({ "mode": "persistent_sequential", "parents": true });
    for _ in 0..3 {
        let created = cluster.send(2, "POST", "/v1/znodes/queue/n-", &sequential).await;
        assert_eq!(created.status, 201);
    }
    let acknowledged = Arc::new(Mutex::new(Vec::new()));
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..4 {
        let node = cluster.http(1 + writer as u64 % 3);
        writers.spawn(write(node, writer, acknowledged.clone(), stop.clone()));
    }
    eventually("there is load", async || acknowledged.lock().unwrap().len() > 300).await;

    let promised = acknowledged.lock().unwrap().clone();
    let follower = cluster.followers().await[0];
    let said = succeeds(&["save", &file, "--server", &cluster.http(follower)]).await;
    assert!(said.contains("is a complete backup"), "{said}");
    assert!(
        fails(&["save", &file, "--server", &cluster.http(follower)])
            .await
            .contains("exists and is not replaced")
    );
    // Tokens granted after the backup must not be granted again either.
    holder.release(held_by.id(), &before).await.unwrap();
    let (mut other, other_session) = cluster.session(2, "other").await;
    let after = other.acquire(other_session.id(), "orders/1").await.unwrap();
    assert!(after.fencing_token > before.fencing_token);
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = writers.join_next().await {
        ended.unwrap();
    }
    let last_shown = position(&cluster, 1).await;
    let old_id = status(&cluster, 1).await["cluster_id"].clone();

    let seen = inspected(&file).await;
    assert_eq!(seen["cluster_id"], old_id);
    assert_eq!(seen["node_id"], follower);
    assert_eq!(seen["sessions"], 1);
    assert_eq!(seen["lock_list"][0]["lock"], "orders/1");
    assert_eq!(
        seen["lock_list"][0]["holders"][0]["fencing_token"],
        before.fencing_token
    );
    assert_eq!(seen["session_list"][0]["session"], held_by.id());

    cluster.kill_all().await.unwrap();
    for id in cluster.ids() {
        std::fs::remove_dir_all(cluster.node(id).unwrap().data_dir()).unwrap();
    }
    let config = |id: u64| {
        cluster
            .node(id)
            .unwrap()
            .config_file()
            .to_str()
            .unwrap()
            .to_owned()
    };
    let whole = std::fs::read(&file).unwrap();
    let cut = path("cut");
    std::fs::write(&cut, &whole[..whole.len() - 7]).unwrap();
    for (file, config, why) in [
        (cut.as_str(), config(1), "is cut off after"),
        (config(1).as_str(), config(1), "is no backup of Lockgate"),
        (file.as_str(), config(2), "the configuration of node 1"),
    ] {
        let error = fails(&["restore", file, "--config", &config]).await;
        assert!(error.contains(why), "{error}");
    }
    for id in cluster.ids() {
        assert!(
            !cluster.node(id).unwrap().data_dir().exists(),
            "the failed restore created no directory"
        );
    }
    let said = succeeds(&["restore", &file, "--config", &config(1)]).await;
    assert!(said.contains("1 ended") && said.contains("moved from"), "{said}");
    let again = fails(&["restore", &file, "--config", &config(1)]).await;
    assert!(again.contains("is not empty"), "{again}");

    cluster.up(START_TIMEOUT).await.unwrap();
    let mut digests = Vec::new();
    for id in cluster.ids() {
        let state = status(&cluster, id).await;
        assert_ne!(state["cluster_id"], old_id);
        assert!(state["applied_zxid"].as_u64().unwrap() > last_shown);
        let children = cluster.get(id, "/v1/znodes/load").await["stat"]["num_children"]
            .as_u64()
            .unwrap();
        digests.push(children);
        // Every write acknowledged before the backup is there, and the session of the backup has ended.
        let mut client = cluster.client_of(id);
        for path in promised.iter().step_by(37) {
            let url = format!("/v1/znodes{path}");
            let found = client
                .call("GET", &url, &Value::Null, crate::harness::TIMEOUT)
                .await;
            assert!(found.is_ok(), "{path} at node {id}: {found:?}");
        }
        let lock = cluster.get(id, "/v1/locks/orders/1").await;
        assert_eq!(lock["holders"], json!([]), "{lock}");
        let beat = format!("/v1/sessions/{}/heartbeat", held_by.id());
        assert_refused(
            &cluster.send(id, "POST", &beat, &Value::Null).await,
            410,
            "session_expired",
        );
        let acquire = json!({ "session": held_by.id() });
        let refused = cluster
            .send(id, "POST", "/v1/locks/orders/1/acquire", &acquire)
            .await;
        assert_refused(&refused, 410, "session_expired");
    }
    assert!(digests.windows(2).all(|pair| pair[0] == pair[1]), "{digests:?}");

    let (mut next, next_session) = cluster.session(3, "next").await;
    let token = next
        .acquire(next_session.id(), "orders/1")
        .await
        .unwrap()
        .fencing_token;
    assert!(token > last_shown && token > after.fencing_token, "{token}");
    let created = cluster
        .send(1, "POST", "/v1/znodes/queue/n-", &sequential)
        .await
        .json();
    assert_eq!(created["path"], "/queue/n-0000000003", "{created}");

    // A backup of the new cluster.
    let second = path("second");
    succeeds(&[
        "save",
        &second,
        "--server",
        &format!("http://{}", cluster.http(1)),
    ])
    .await;
    let seen = inspected(&second).await;
    assert!(seen["zxid"].as_u64().unwrap() > last_shown);
    let left: Vec<_> = std::fs::read_dir(place.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left.len(), 3, "only complete files stay: {left:?}");
}

#[tokio::test]
async fn failed_backup_leaves_no_file() {
    let mut cluster = TestCluster::start().await;
    let place = TempDir::new().unwrap();
    let file = place.path().join("backup");
    let file = file.to_str().unwrap();
    for id in [2, 3] {
        cluster.kill(id).await.unwrap();
    }
    // Without a quorum it is unknown which writes were acknowledged; the node's own state can be saved all
    // the same.
    let node = cluster.http(1);
    let refused = fails(&["save", file, "--server", &node]).await;
    assert!(refused.contains("the node answered 503"), "{refused}");
    assert!(is_empty(place.path()));
    succeeds(&["save", file, "--server", &node, "--stale"]).await;
    std::fs::remove_file(file).unwrap();
    cluster.kill(1).await.unwrap();
    let refused = fails(&["save", file, "--server", &node]).await;
    assert!(refused.contains("the download failed"), "{refused}");
    assert!(is_empty(place.path()));
    let nowhere = place.path().join("missing/backup");
    fails(&["save", nowhere.to_str().unwrap(), "--server", &node]).await;
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}
