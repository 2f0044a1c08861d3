//! Nodes that reject clients before their cluster is secured, and the command that secures it.

use std::fs;

use cli_support::http_client::{Response, request};
use local_cluster::START_TIMEOUT;
use lockgate::lock_node::NodeId;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use super::{run, succeeds, text};
use crate::harness::{ACCESS_REQUIRED, TestCluster, eventually};

/// Returns a node's answer to a caller without credentials, as soon as the node can answer: on a busy machine
/// it may lag behind for a moment.
async fn answer_of(cluster: &TestCluster, id: NodeId, method: &str, path: &str, body: &Value) -> Response {
    let mut last = None;
    eventually("the node serves", async || {
        let answer = cluster.send(id, method, path, body).await;
        let serves = answer.status != 503;
        last = Some(answer);
        serves
    })
    .await;
    last.expect("the node answered")
}

#[tokio::test]
async fn clients_are_rejected_before_the_cluster_is_secured() {
    let mut cluster = TestCluster::configure(ACCESS_REQUIRED);
    cluster.up(START_TIMEOUT).await.unwrap();
    let node = cluster.node(1).unwrap().clone();
    for (path, status) in [
        ("/healthz", 200),
        ("/readyz", 200),
        ("/v1/locks", 401),
        ("/v1/cluster", 401),
    ] {
        let answer = answer_of(&cluster, 1, "GET", path, &Value::Null).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.json());
        if status == 401 {
            assert_eq!(answer.code(), "unauthenticated");
            let detail = answer.json()["detail"].to_string();
            assert!(detail.contains("lockgate access secure"), "{detail}");
        }
    }
    let opened = answer_of(&cluster, 1, "POST", "/v1/sessions", &json!({ "ttl_ms": 5000 })).await;
    assert_eq!(opened.status, 401);
    let mut zookeeper = TcpStream::connect(node.zookeeper.as_ref().unwrap())
        .await
        .unwrap();
    assert_eq!(
        zookeeper.read(&mut [0; 1]).await.unwrap(),
        0,
        "the node closes the connection"
    );

    // The log has the command that secures the cluster; it works unchanged.
    let mut command = String::new();
    eventually("the log has the command", async || {
        let log = fs::read_to_string(node.log_file()).unwrap();
        let said = log
            .lines()
            .find_map(|line| line.split_once("node's files: `lockgate "));
        let quoted = said.and_then(|(_, rest)| rest.split_once('`'));
        command = quoted.map(|(command, _)| command.to_owned()).unwrap_or_default();
        !command.is_empty()
    })
    .await;
    let words: Vec<&str> = command.split_whitespace().collect();
    let admin = cluster.dir().join("first.token");
    let (out, words) = (text(&admin), &words[..words.len() - 2]);
    let secure = [words, &["--out", out, "--anonymous", "read:orders"]].concat();
    let said = succeeds(&secure).await;
    assert!(
        said.contains("of role admin: valid until it is revoked"),
        "{said}"
    );
    let again = run(&[words, &["--json"]].concat()).await;
    assert!(
        again.code == 1 && again.err.contains("secured already"),
        "{again:?}"
    );
    eventually("the log reports the secured cluster", async || {
        fs::read_to_string(node.log_file())
            .unwrap()
            .contains("the cluster is secured")
    })
    .await;

    // Every caller has the rights of `anonymous`, at every node; the administrator has all rights.
    for id in cluster.ids() {
        eventually("the node has applied it", async || {
            let looked = request(&cluster.http(id), "GET", "/v1/locks?prefix=orders", "").await;
            looked.unwrap().status == 200
        })
        .await;
    }
    let opened = answer_of(&cluster, 2, "POST", "/v1/tokens", &json!({ "role": "admin" })).await;
    assert_eq!(opened.status, 401, "{}", opened.json());
    let servers = cluster.http_addresses().join(",");
    let listed = succeeds(&["token", "list", "--server", &servers, "--token-file", out]).await;
    assert_eq!(listed.lines().count(), 2, "{listed}");
}
