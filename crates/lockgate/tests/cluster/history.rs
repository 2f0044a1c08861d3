//! History of locks: its contents, the agreement of the nodes, and the loss of an index.

use std::path::{Path, PathBuf};
use std::process::Command;

use local_cluster::START_TIMEOUT;
use lockgate::lock_node::NodeId;
use serde_json::{Value, json};

use crate::harness::{LOCKGATE, TestCluster, assert_refused, eventually};

impl TestCluster {
    async fn history(&self, id: NodeId, lock: &str) -> Value {
        let path = format!("/v1/locks/{lock}/history?limit=1000&linearizable=true");
        let response = self.send(id, "GET", &path, &Value::Null).await;
        assert_eq!(response.status, 200, "node {id}: {}", response.json());
        response.json()
    }

    fn history_dir(&self, id: NodeId) -> PathBuf {
        let node = self.node(id).expect("the node is one of the cluster's");
        node.data_dir().join("history")
    }
}

/// Returns the values of one field, the latest hold first.
fn column(history: &Value, field: &str) -> Vec<Value> {
    let entries = history["history"].as_array().expect("a list of holds");
    entries.iter().map(|entry| entry[field].clone()).collect()
}

#[tokio::test]
async fn every_end_of_a_hold_is_recorded_equally_on_all_nodes() {
    let cluster = TestCluster::start().await;
    let (mut client, session) = cluster.session(1, "worker").await;
    let (mut other, closing) = cluster.session(2, "closing").await;
    let released = client.acquire(session.id(), "a b/job").await.unwrap();
    client.release(session.id(), &released).await.unwrap();
    let broken = client.acquire(session.id(), "a b/job").await.unwrap();
    let body = json!({"holder": broken.holder, "reason": "stuck for hours"});
    let path = "/v1/locks/a%20b/job";
    assert_eq!(
        cluster
            .send(3, "POST", &format!("{path}/break"), &body)
            .await
            .status,
        204
    );
    let deleted = client.acquire(session.id(), "a b/job").await.unwrap();
    let znode = format!("/v1/znodes/locks/a%20b/job/{}", deleted.holder);
    assert_eq!(cluster.send(2, "DELETE", &znode, &Value::Null).await.status, 204);
    let closed = other.acquire(closing.id(), "a b/job").await.unwrap();
    let address = format!("/v1/sessions/{}", closing.id());
    assert_eq!(
        cluster.send(1, "DELETE", &address, &Value::Null).await.status,
        204
    );
    let body = json!({"session": session.id(), "mode": "semaphore", "limit": 5, "permits": 2,
        "note": "nightly", "owner": "main"});
    let held = cluster
        .send(1, "POST", &format!("{path}/acquire"), &body)
        .await
        .json();

    let seen = cluster.history(1, "a%20b/job").await;
    assert_eq!(seen["lock"], "a b/job");
    assert_eq!(
        column(&seen, "ended"),
        [
            Value::Null,
            json!("session_closed"),
            json!("deleted"),
            json!("broken"),
            json!("released")
        ]
    );
    let tokens = [&closed, &deleted, &broken, &released].map(|lock| json!(lock.fencing_token));
    assert_eq!(column(&seen, "fencing_token")[1..], tokens);
    assert_eq!(column(&seen, "reason")[3], "stuck for hours");
    assert_eq!(
        column(&seen, "by")[2..4],
        [json!("ip:127.0.0.1"), json!("ip:127.0.0.1")]
    );
    let first = &seen["history"][0];
    assert_eq!(first["holder"], held["holder"]);
    for (field, value) in [
        ("session", json!(session.id())),
        ("session_name", json!("worker")),
        ("note", json!("nightly")),
        ("owner", json!("main")),
        ("mode", json!("semaphore")),
        ("limit", json!(5)),
        ("permits", json!(2)),
        ("until_at", Value::Null),
    ] {
        assert_eq!(first[field], value, "{field}");
    }
    for entry in seen["history"].as_array().unwrap().iter().skip(1) {
        let at = |field: &str| entry[field].as_str().expect("a time").to_owned();
        assert!(at("from_at") <= at("until_at"), "{entry}");
    }
    assert_eq!((&seen["gaps"], &seen["since_at"]), (&json!([]), &Value::Null));
    for id in cluster.ids() {
        assert_eq!(cluster.history(id, "a%20b/job").await, seen, "node {id}");
    }

    // Page by page.
    let page = |query: String| {
        let cluster = &cluster;
        async move {
            let path = format!("{path}/history?{query}");
            cluster.send(2, "GET", &path, &Value::Null).await
        }
    };
    let mut paged = Vec::new();
    let mut query = "limit=2".to_owned();
    loop {
        let document = page(query).await.json();
        paged.extend(document["history"].as_array().unwrap().clone());
        match document["next_cursor"].as_str() {
            Some(before) => query = format!("limit=2&cursor={before}"),
            None => break,
        }
    }
    assert_eq!(json!(paged), seen["history"]);
    assert_refused(&page("limit=0".to_owned()).await, 400, "bad_request");
    let nobody = cluster.history(1, "never").await;
    assert_eq!(nobody["history"], json!([]));
    let response = cluster
        .send(1, "POST", &format!("{path}/history"), &Value::Null)
        .await;
    assert_refused(&response, 405, "method_not_allowed");

    // As a table and as JSON.
    let (nodes, ask) = (cluster.http(3), |more: &[&str]| {
        let mut command = Command::new(LOCKGATE);
        command
            .args(["history", "a b/job", "--server", &cluster.http(3)])
            .args(more);
        let output = command.output().expect("the program runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    });
    let table = ask(&[]);
    assert_eq!(table.lines().count(), 6, "{table}");
    assert!(
        table.contains("broken (stuck for hours) by ip:127.0.0.1"),
        "{nodes}: {table}"
    );
    let document: Value = serde_json::from_str(&ask(&["--json"])).expect("JSON");
    assert_eq!(document, seen);
}

#[tokio::test]
async fn histories_survive_kills_of_followers_and_leaders() {
    // Frequent snapshots, so that a node restarts from its own and from those of others.
    let settings = "[snapshots]\nevery_entries = 40\nkeep_entries = 5\n";
    let mut cluster = TestCluster::start_with(settings).await;
    let (mut client, session) = cluster.session(1, "worker").await;
    let mut tokens = Vec::new();
    let kept = client.acquire(session.id(), "kept").await.unwrap();
    let mut lost = Vec::new();
    for round in 0..4 {
        let victim = match round % 2 {
            0 => cluster.followers().await[0],
            _ => cluster.leader_now().await,
        };
        let across = client.acquire(session.id(), "across").await.unwrap();
        for step in 0..30 {
            if step == 10 {
                assert!(cluster.kill(victim).await.unwrap());
            }
            let taken = client.acquire(session.id(), "job").await.unwrap();
            client.release(session.id(), &taken).await.unwrap();
            tokens.push(json!(taken.fencing_token));
        }
        // The hold ends while one node is down.
        client.release(session.id(), &across).await.unwrap();
        lost.push(json!(across.fencing_token));
        cluster.up(START_TIMEOUT).await.unwrap();
    }
    tokens.reverse();
    lost.reverse();
    let mut closed = Vec::new();
    for id in cluster.ids() {
        let job = cluster.history(id, "job").await;
        let across = cluster.history(id, "across").await;
        let held = cluster.history(id, "kept").await;
        assert_eq!(column(&held, "fencing_token"), [json!(kept.fencing_token)]);
        assert_eq!(column(&held, "ended"), [Value::Null]);
        // All nodes agree on the holds that they have; a node reports its gaps.
        let seen = column(&job, "fencing_token");
        assert!(
            seen.iter().all(|token| tokens.contains(token)),
            "node {id}: {job}"
        );
        let is_whole = job["gaps"] == json!([]) && job["since_at"].is_null();
        assert!(
            !is_whole || seen == tokens,
            "node {id} does not report its gaps: {job}"
        );
        let is_whole = across["gaps"] == json!([]) && across["since_at"].is_null();
        assert!(
            !is_whole || column(&across, "fencing_token") == lost,
            "node {id}: {across}"
        );
        let entries = [&job, &across].map(|history| history["history"].as_array().unwrap().clone());
        closed.push((id, entries.concat()));
    }
    for (id, entries) in &closed {
        for entry in entries.iter().filter(|entry| entry["ended"] != "unknown") {
            assert_eq!(entry["ended"], "released", "node {id}: {entry}");
            for (other, others) in &closed {
                let same = others
                    .iter()
                    .find(|known| known["fencing_token"] == entry["fencing_token"]);
                if let Some(known) = same.filter(|known| known["ended"] != "unknown") {
                    assert_eq!(known, entry, "nodes {id} and {other}");
                }
            }
        }
    }
}

/// Flips bits in all parts of an index's file.
fn corrupt(dir: &Path) {
    let file = dir.join("db");
    let mut bytes = std::fs::read(&file).expect("the index's file");
    for byte in bytes.iter_mut().step_by(7) {
        *byte ^= 0x55;
    }
    std::fs::write(&file, bytes).expect("the index's file can be written");
}

#[tokio::test]
async fn lost_or_damaged_index_loses_history_and_nothing_else() {
    let settings = "[snapshots]\nevery_entries = 20\nkeep_entries = 5\n";
    let mut cluster = TestCluster::start_with(settings).await;
    let (mut client, session) = cluster.session(1, "worker").await;
    let kept = client.acquire(session.id(), "kept").await.unwrap();
    for _ in 0..60 {
        let taken = client.acquire(session.id(), "job").await.unwrap();
        client.release(session.id(), &taken).await.unwrap();
    }
    let known = cluster.history(2, "job").await;
    assert_eq!(column(&known, "ended").len(), 60);

    // One index is deleted, one is corrupted, and one is replaced by a file.
    for id in cluster.ids() {
        assert!(cluster.stop(id, local_cluster::STOP_TIMEOUT).await.unwrap());
    }
    std::fs::remove_dir_all(cluster.history_dir(1)).unwrap();
    corrupt(&cluster.history_dir(2));
    std::fs::remove_dir_all(cluster.history_dir(3)).unwrap();
    std::fs::write(cluster.history_dir(3), "not a directory").unwrap();
    cluster.up(START_TIMEOUT).await.unwrap();

    let (mut client, again) = cluster.session(1, "later").await;
    let later = client.acquire(again.id(), "job").await.unwrap();
    client.release(again.id(), &later).await.unwrap();
    for id in cluster.ids() {
        assert!(cluster.client_of(id).check(&kept).await.unwrap());
    }
    for id in [1, 2] {
        let mut seen = Value::Null;
        eventually(&format!("node {id} has a history again"), async || {
            let path = "/v1/locks/job/history?linearizable=true";
            let response = cluster.send(id, "GET", path, &Value::Null).await;
            seen = response.json();
            response.status == 200
        })
        .await;
        assert_eq!(column(&seen, "fencing_token")[0], json!(later.fencing_token));
        assert!(
            column(&seen, "ended").len() < 61,
            "holds that are no longer in the log are lost"
        );
        assert!(
            seen["since_at"].is_string(),
            "the history reports the loss: {seen}"
        );
        let held = cluster.history(id, "kept").await;
        assert_eq!(column(&held, "fencing_token"), [json!(kept.fencing_token)]);
    }
    let warned = std::fs::read_to_string(cluster.node(2).unwrap().log_file()).unwrap();
    assert!(warned.contains("begins anew"), "{warned}");
    // The file in place of the index is not deleted, and the node serves.
    assert!(cluster.history_dir(3).is_file());
    let path = "/v1/locks/job/history";
    assert_refused(
        &cluster.send(3, "GET", path, &Value::Null).await,
        503,
        "unavailable",
    );
}

#[tokio::test]
async fn history_can_be_disabled() {
    let cluster = TestCluster::start_with("[history]\nenabled = false\n").await;
    let (mut client, session) = cluster.session(1, "worker").await;
    client.acquire(session.id(), "job").await.unwrap();
    let path = "/v1/locks/job/history";
    assert_refused(
        &cluster.send(1, "GET", path, &Value::Null).await,
        404,
        "no_history",
    );
    assert!(!cluster.history_dir(1).exists());
}
