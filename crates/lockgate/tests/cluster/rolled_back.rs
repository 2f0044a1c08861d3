//! Rollback of a node's data directory to an older copy: a restored image of its machine, or of its files.

use std::fs;
use std::path::{Path, PathBuf};

use local_cluster::{START_TIMEOUT, STOP_TIMEOUT};
use lockgate::lock_node::NodeId;
use serde_json::Value;

use crate::command_line::succeeds;
use crate::harness::{TestCluster, eventually};

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type().unwrap().is_dir() {
            true => copy(&from, &to),
            false => drop(fs::copy(&from, &to).unwrap()),
        }
    }
}

/// Copies the data directory of a node while it is stopped. Returns the path of the copy.
async fn image(cluster: &mut TestCluster, id: NodeId) -> PathBuf {
    cluster.stop(id, STOP_TIMEOUT).await.unwrap();
    let image = cluster.dir().join("image");
    copy(&cluster.node(id).unwrap().data_dir(), &image);
    cluster.up(START_TIMEOUT).await.unwrap();
    image
}

fn put_back(cluster: &TestCluster, id: NodeId, image: &Path) {
    let dir = cluster.node(id).unwrap().data_dir();
    fs::remove_dir_all(&dir).unwrap();
    copy(image, &dir);
}

fn log_of(cluster: &TestCluster, id: NodeId) -> String {
    fs::read_to_string(cluster.node(id).unwrap().log_file()).unwrap()
}

/// Starts a node whose data directory is older than its peers' record of it, and waits until it has ended for
/// that reason.
async fn assert_start_rejected(cluster: &mut TestCluster, id: NodeId) {
    let refusals = |cluster: &TestCluster| log_of(cluster, id).matches("older than what node").count();
    let before = refusals(cluster);
    cluster.start(id).unwrap();
    eventually("the node logs why it ends", async || refusals(cluster) > before).await;
    eventually("the node ends", async || cluster.pid(id).unwrap().is_none()).await;
}

/// One of the two nodes with the grant is dead when the other returns without it, to the third node, which
/// does not have it.
#[tokio::test]
async fn grant_that_a_rolled_back_node_had_acknowledged_is_not_granted_again() {
    let mut cluster = TestCluster::start_with("[log]\nlevel = \"debug\"\n").await;
    let followers = cluster.followers().await;
    let (returning, absent) = (followers[0], followers[1]);
    let image = image(&mut cluster, returning).await;
    let met = format!("node={returning} start=2");
    eventually("the other follower has recorded the start", async || {
        log_of(&cluster, absent).contains(&met)
    })
    .await;
    let leader = cluster
        .ids()
        .into_iter()
        .find(|id| ![returning, absent].contains(id))
        .unwrap();
    cluster.kill(absent).await.unwrap();
    let (mut client, session) = cluster.session(leader, "holder").await;
    let granted = client.acquire(session.id(), "money").await.unwrap();
    cluster.kill(returning).await.unwrap();
    put_back(&cluster, returning, &image);
    cluster.kill(leader).await.unwrap();

    cluster.start(absent).unwrap();
    assert_start_rejected(&mut cluster, returning).await;
    let log = log_of(&cluster, returning);
    assert!(
        log.contains(&format!("lockgate cluster replace {returning}")),
        "{log}"
    );
    let ready = cluster.send(absent, "GET", "/readyz", &Value::Null).await;
    assert_eq!(ready.status, 503, "one of three is no quorum");

    // The node does not start again, and the cluster serves without it.
    assert_start_rejected(&mut cluster, returning).await;
    cluster.start(leader).unwrap();
    cluster
        .wait_ready(&[leader, absent], START_TIMEOUT)
        .await
        .unwrap();
    for id in [leader, absent] {
        let lock = cluster.get(id, "/v1/locks/money").await;
        assert_eq!(
            lock["holders"][0]["fencing_token"], granted.fencing_token,
            "{lock}"
        );
    }

    // One command repairs it.
    let dir = cluster.dir().to_str().unwrap().to_owned();
    succeeds(&[
        "member",
        "replace",
        "--yes",
        &returning.to_string(),
        "--dir",
        &dir,
    ])
    .await;
    let seen = cluster
        .send(leader, "GET", "/v1/cluster", &Value::Null)
        .await
        .json();
    let members: Vec<_> = seen["members"].as_array().unwrap().iter().collect();
    let ids: Vec<_> = members
        .iter()
        .map(|member| member["node_id"].as_u64().unwrap())
        .collect();
    assert!(
        ids.contains(&4) && !ids.contains(&returning) && ids.len() == 3,
        "{seen}"
    );
    assert!(members.iter().all(|member| member["role"] != "learner"), "{seen}");
    assert_eq!(seen["alarms"], serde_json::json!([]));
    succeeds(&["cluster", "down", "--dir", &dir]).await;
}
