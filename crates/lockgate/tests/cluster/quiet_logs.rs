//! Default log of a node: events that an operator needs, once each.

use std::time::Duration;

use local_cluster::START_TIMEOUT;

use crate::harness::{TestCluster, eventually};

/// Time for many heartbeats, and several rounds of every periodic task of a node.
const A_WHILE: Duration = Duration::from_secs(4);

/// Parts of lines about the machine, which other tests keep busy.
const OF_THE_MACHINE: [&str; 3] = ["did not run", "alarm", "lockgate::slow"];

/// Returns the lines that a node has logged from `from` on, without those about the machine.
fn lines(cluster: &TestCluster, id: u64, from: usize) -> Vec<String> {
    let log = std::fs::read_to_string(cluster.node(id).unwrap().log_file()).unwrap();
    let new = log.lines().skip(from);
    new.filter(|line| !OF_THE_MACHINE.iter().any(|words| line.contains(words)))
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
    // After all connections are made, and the first lock is acquired.
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
        about("peers: lost the connection") == 1
    })
    .await;
    tokio::time::sleep(A_WHILE).await;
    let lost = lines(&cluster, leader, from);
    assert_eq!(lost.len(), 1, "{lost:#?}");

    cluster.up(START_TIMEOUT).await.unwrap();
    eventually("the leader has the node again", async || {
        let lines = lines(&cluster, leader, from);
        lines
            .iter()
            .any(|line| line.contains("peers: connected to a lost peer again"))
    })
    .await;
    tokio::time::sleep(A_WHILE).await;
    let back = lines(&cluster, leader, from);
    assert_eq!(back.len(), 2, "{back:#?}");
}
