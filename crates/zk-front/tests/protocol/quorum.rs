//! A node without a quorum sends its clients nothing that it cannot confirm.

use std::time::Duration;

use zk_wire::Request;

use crate::client::{Client, PERSISTENT, Received};
use crate::cluster::Cluster;

#[tokio::test]
async fn node_without_a_quorum_ends_its_connections() {
    let timeout = Duration::from_secs(3);
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let alone = *cluster.served.keys().find(|id| **id != leader).unwrap();
    let mut client = Client::connect_for(cluster.address(alone), timeout).await;
    client.create("/a", PERSISTENT).await;
    let resume_request = client.resume_request();
    for id in 1..=3 {
        if id != alone {
            cluster.lose(id).await;
        }
    }
    // The client is alive and pings.
    let mut pings = tokio::time::interval(timeout / 6);
    // `session_keepalive.rs` tests the exact time with a paused clock.
    loop {
        tokio::select! {
            came = client.receive(&Request::Ping) => match came {
                Received::End => break,
                came => panic!("unexpected frame: {came:?}"),
            },
            _ = pings.tick() => {
                client.send(&Request::Ping).await;
            }
        }
    }
    // The node accepts no clients either.
    let mut stream = crate::client::Stream::open(cluster.address(alone)).await;
    assert_eq!(stream.connect(&resume_request).await, None);
    cluster.stop().await;
}
