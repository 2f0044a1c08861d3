//! A node that has lost the others tells its clients nothing that it cannot know.

use std::time::Duration;

use zk_wire::Request;

use crate::client::{Came, Client, PERSISTENT};
use crate::cluster::Cluster;

#[tokio::test]
async fn node_without_a_quorum_ends_its_connections() {
    let timeout = Duration::from_secs(3);
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let alone = *cluster.served.keys().find(|id| **id != leader).unwrap();
    let mut client = Client::connect_for(cluster.address(alone), timeout).await;
    client.create("/a", PERSISTENT).await;
    let ticket = client.ticket();
    for id in 1..=3 {
        if id != alone {
            cluster.lose(id).await;
        }
    }
    // A client that is alive, as far as it can tell.
    let mut beats = tokio::time::interval(timeout / 6);
    // When, to the millisecond, is tested with a clock that stands still (`pulse.rs`).
    loop {
        tokio::select! {
            came = client.receive(&Request::Ping) => match came {
                Came::End => break,
                came => panic!("it was told {came:?}"),
            },
            _ = beats.tick() => {
                client.send(&Request::Ping).await;
            }
        }
    }
    // Nor does it take anybody in.
    let mut stream = crate::client::Stream::open(cluster.address(alone)).await;
    assert_eq!(stream.connect(&ticket).await, None);
    cluster.stop().await;
}
