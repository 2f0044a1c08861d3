//! What a node logs by default: what an operator has to know, once.

use std::time::Duration;

use local_cluster::START_TIMEOUT;

use crate::harness::{TestCluster, eventually};

/// Many heartbeats, and several rounds of everything that a node does by itself.
const A_WHILE: Duration = Duration::from_secs(4);

/// Lines about the machine, which other tests keep busy.
const OF_THE_MACHINE: [&str; 3] = ["stood still", "alarm", "lockgate::slow"];

/// The lines that a node has logged from `from` on, without what is of the machine.
fn lines(cluster: &TestCluster, id: u64, from: usize) -> Vec<String> {
    let log = std::fs::read_to_string(cluster.node(id).unwrap().log_file()).unwrap();
    let told = log.lines().skip(from);
    told.filter(|line| !OF_THE_MACHINE.iter().any(|words| line.contains(words)))
        .map(str::to_owned)
        .collect()
}

fn logged(cluster: &TestCluster, id: u64) -> usize {
    let log = std::fs::read_to_string(cluster.node(id).unwrap().log_file()).unwrap();
    log.lines().count()
}

#[tokio::test]
async fn undisturbed_node_logs_nothing_and_a_dead_peer_is_two_lines() {
    let mut cluster = TestCluster::start().await;
    let leader = cluster.leader_now().await;
    let dies = cluster.followers().await[0];
    // All connections are made, and the first lock is opened.
    let (mut client, session) = cluster.session(leader, "works").await;
    client.acquire(session.id(), "first").await.unwrap();

    let from = logged(&cluster, leader);
    tokio::time::sleep(A_WHILE).await;
    client.acquire(session.id(), "second").await.unwrap();
    assert_eq!(lines(&cluster, leader, from), Vec::<String>::new());

    cluster.kill(dies).await.unwrap();
    let about = |words: &str| {
        let lines = lines(&cluster, leader, from);
        lines.iter().filter(|line| line.contains(words)).count()
    };
    eventually("the leader has lost the node", async || {
        about("a peer is lost") == 1
    })
    .await;
    tokio::time::sleep(A_WHILE).await;
    let lost = lines(&cluster, leader, from);
    assert_eq!(lost.len(), 1, "{lost:#?}");

    cluster.up(START_TIMEOUT).await.unwrap();
    eventually("the leader has the node again", async || {
        let lines = lines(&cluster, leader, from);
        lines.iter().any(|line| line.contains("a peer is back"))
    })
    .await;
    tokio::time::sleep(A_WHILE).await;
    let back = lines(&cluster, leader, from);
    assert_eq!(back.len(), 2, "{back:#?}");
}
