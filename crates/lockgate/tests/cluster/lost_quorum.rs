//! Last resort of docs/operate/backup-restore.md: a majority is lost, and the state of the one remaining node
//! becomes a new cluster.

use local_cluster::START_TIMEOUT;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::command_line::succeeds;
use crate::harness::{TestCluster, assert_refused};

#[tokio::test]
async fn last_node_becomes_a_new_cluster() {
    let mut old = TestCluster::start().await;
    let created = old
        .send(1, "POST", "/v1/znodes/kept", &json!({ "data": "by all three" }))
        .await;
    assert_eq!(created.status, 201);
    let (mut client, session) = old.session(1, "holder").await;
    let token = client
        .acquire(session.id(), "orders/1")
        .await
        .unwrap()
        .fencing_token;
    // A linearizable read at the remaining node, so that it has the acknowledged write.
    let left = old.followers().await[0];
    let read = old
        .send(left, "GET", "/v1/znodes/kept?linearizable=true", &Value::Null)
        .await;
    assert_eq!(read.json()["data"], "by all three");

    // The leader and one more node are lost, with their disks.
    for id in old.ids() {
        if id != left {
            old.kill(id).await.unwrap();
            std::fs::remove_dir_all(old.node(id).unwrap().data_dir()).unwrap();
        }
    }
    let place = TempDir::new().unwrap();
    let backup = place.path().join("last");
    let backup = backup.to_str().unwrap();
    succeeds(&["snapshot", "save", backup, "--server", &old.http(left), "--stale"]).await;
    old.kill(left).await.unwrap();

    let mut new = TestCluster::configure("");
    let config = new.node(1).unwrap().config_file();
    let config = config.to_str().unwrap();
    succeeds(&["snapshot", "restore", backup, "--config", config]).await;
    new.up(START_TIMEOUT).await.unwrap();
    for id in new.ids() {
        let read = new.get(id, "/v1/znodes/kept").await;
        assert_eq!(read["data"], "by all three", "node {id}");
        let lock = new.get(id, "/v1/locks/orders/1").await;
        assert_eq!(lock["holders"], json!([]), "the restore ended its session");
    }
    let beat = format!("/v1/sessions/{}/heartbeat", session.id());
    let refused = new.send(2, "POST", &beat, &Value::Null).await;
    assert_refused(&refused, 410, "session_expired");
    let (mut client, session) = new.session(2, "next").await;
    let next = client.acquire(session.id(), "orders/1").await.unwrap();
    assert!(next.fencing_token > token);
}
