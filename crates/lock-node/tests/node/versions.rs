//! Clusters whose nodes run several versions of the program, as during an upgrade.

use lock_node::versions::{ProgramVersions, WireRange};
use lock_node::{Node, NodeId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::cluster::{Cluster, TIMEOUT, eventually, put};

const OWN: u16 = WireRange::OWN.newest;

fn range(oldest: u16, newest: u16) -> WireRange {
    WireRange { oldest, newest }
}

fn versions_of(seen_by: &Node, member: NodeId) -> Option<ProgramVersions> {
    let members = seen_by.status().members;
    let member = members.into_iter().find(|status| status.node_id == member);
    member.and_then(|status| status.versions)
}

#[tokio::test]
async fn nodes_with_overlapping_versions_form_a_cluster() {
    let ranges = [range(1, OWN), range(OWN, OWN + 2), range(OWN - 1, OWN + 1)];
    let mut cluster = Cluster::start_with(3, |config| {
        config.raft.wire = ranges[config.raft.node_id as usize - 1];
    })
    .await;
    for node in cluster.nodes.values() {
        assert!(
            put(node, &format!("/by-{}", node.id()), "x")
                .await
                .outcome
                .is_ok()
        );
    }
    let leader = cluster.node(cluster.leader().await);
    for (id, wire) in (1..).zip(ranges) {
        eventually("the leader has met everybody", || {
            versions_of(leader, id).is_some()
        })
        .await;
        let versions = versions_of(leader, id).unwrap();
        assert_eq!(versions.wire, wire);
        assert_eq!(versions.program, env!("CARGO_PKG_VERSION"));
    }
    cluster.stop_all().await;
}

#[tokio::test]
async fn rolling_upgrade_keeps_serving() {
    let old = range(OWN - 1, OWN);
    let new = range(OWN, OWN + 1);
    let mut cluster = Cluster::start_with(3, |config| config.raft.wire = old).await;
    put(cluster.node(1), "/before", "x").await;
    for id in 1..=3 {
        cluster.stop(id).await;
        cluster.configs.get_mut(&id).unwrap().raft.wire = new;
        let other = *cluster.nodes.keys().next().unwrap();
        assert!(
            put(cluster.node(other), &format!("/without-{id}"), "x")
                .await
                .outcome
                .is_ok()
        );
        cluster.restart(id).await.unwrap();
        cluster.wait_ready().await;
    }
    // A version that is one release too old is rejected.
    cluster.stop(3).await;
    cluster.configs.get_mut(&3).unwrap().raft.wire = range(OWN - 1, OWN - 1);
    cluster.restart(3).await.unwrap();
    let late = cluster.nodes.remove(&3).unwrap();
    eventually("it says why", || {
        late.not_ready()
            .is_some_and(|reason| reason.contains("node 3's program is too old"))
    })
    .await;
    assert!(put(cluster.node(1), "/after", "x").await.outcome.is_ok());
    late.stop().await;
    cluster.stop_all().await;
}

/// Sends a frame to a peer port, and returns the reply as text.
async fn answer_to(peer: &str, message: &[u8]) -> String {
    let mut stream = TcpStream::connect(peer).await.unwrap();
    let mut frame = (message.len() as u32).to_le_bytes().to_vec();
    frame.extend_from_slice(message);
    stream.write_all(&frame).await.unwrap();
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    tokio::time::timeout(TIMEOUT, read).await.unwrap().unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn unknown_version_gets_a_version_error() {
    let mut cluster = Cluster::start(1).await;
    let peer = cluster.configs[&1].raft.members[&1].peer.clone();
    // A program of the far future has only the magic and the versions in common with this one.
    let mut hello = b"lockgate".to_vec();
    hello.extend([90, 99]);
    hello.extend(b"what follows is of another layout");
    let answer = answer_to(&peer, &hello).await;
    assert!(
        answer.contains("node 1 speaks version") && answer.contains(&OWN.to_string()),
        "{answer:?}"
    );
    assert!(answer.contains("versions 90 to 99"), "{answer:?}");
    assert!(answer.contains("program is too old"), "{answer:?}");
    let answer = answer_to(&peer, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(answer.contains("this port is for Lockgate's peers"), "{answer:?}");
    cluster.stop_all().await;
}
