//! Clients that send more requests than the node admits: the requests wait in order, and none is rejected.

use std::time::{Duration, Instant};

use bytes::{BufMut, BytesMut};
use lock_node::admission::PaceBounds;
use zk_front::ZkConfig;
use zk_wire::Request;
use znode_store::{Command, Op, ZPath};

use crate::client::{Client, PERSISTENT, Received, Stream, create, delete, get, new_session, set};
use crate::cluster::{Cluster, MIN_SESSION_TIMEOUT, in_time};

/// Number of requests that each client sends without waiting.
const SENT: usize = 400;

/// Returns creates, reads, writes and deletes.
fn requests(client: usize) -> Vec<Request> {
    (0..SENT / 4)
        .flat_map(|number| {
            let path = format!("/client-{client}-{number}");
            [
                create(&path, PERSISTENT),
                get(&path, false),
                set(&path, "x"),
                delete(&path),
            ]
        })
        .collect()
}

#[tokio::test]
async fn requests_wait_for_admission_in_order() {
    // Two writes at a time for all clients together.
    let cluster = Cluster::start_adjusted(1, ZkConfig::default(), |node| {
        node.admission.max_outstanding = 2;
    })
    .await;
    let address = cluster.address(1);
    let mut clients = Vec::new();
    for client in 0..4 {
        // One after the other: opening a session is rejected while the node is overloaded.
        let mut connected = Client::connect(address).await;
        clients.push(async move {
            let requests = requests(client);
            let sent = connected.send_all(&requests).await;
            for (xid, request) in sent.into_iter().zip(&requests) {
                match connected.receive(request).await {
                    Received::Reply {
                        xid: answered,
                        outcome,
                        ..
                    } => {
                        assert_eq!(answered, xid);
                        assert!(outcome.is_ok(), "{request:?}: {outcome:?}");
                    }
                    other => panic!("{request:?}: {other:?}"),
                }
            }
            assert!(connected.call(&Request::CloseSession).await.is_ok());
        });
    }
    let clients: Vec<_> = clients.into_iter().map(tokio::spawn).collect();
    for client in clients {
        in_time("all are answered", client).await.unwrap();
    }
    let counts = cluster.node(1).admission_counts();
    assert_eq!((counts.new, counts.kept, counts.bytes), (0, 0, 0));
    assert_eq!(counts.refused, [0, 0]);
    assert_eq!(counts.limit, 2);
    cluster.stop().await;
}

#[tokio::test]
async fn large_writes_beyond_the_pace_are_delayed_beside_another_caller() {
    let cluster = Cluster::start_adjusted(1, ZkConfig::default(), |node| {
        node.admission.large_writes = PaceBounds {
            per_second: 1_000,
            at_once: 0,
        };
    })
    .await;
    let delayed = || cluster.node(1).admission_counts().answers_delayed;
    let mut client = Client::connect(cluster.address(1)).await;
    client.create("/large", PERSISTENT).await;
    client.create("/small", PERSISTENT).await;
    let data = "x".repeat(100_000);
    assert!(client.call(&set("/large", &data)).await.is_ok());
    assert_eq!(delayed(), 0, "a caller without others has the whole node");
    // A caller without an address.
    let other = znode_store::Request::anonymous(Command::Write(Op::Delete {
        path: ZPath::parse("/none").unwrap(),
        version: -1,
    }));
    in_time("a large write is delayed", async {
        // The other caller counts for a second, which may be over on a busy machine.
        while delayed() == 0 {
            cluster.node(1).propose(other.clone()).await.unwrap();
            let began = Instant::now();
            // The second one waits behind the first one in the order of the connection.
            let requests = [set("/large", &data), set("/small", "y")];
            client.send_all(&requests).await;
            for request in &requests {
                let reply = client.receive(request).await;
                assert!(
                    matches!(reply, Received::Reply { outcome: Ok(_), .. }),
                    "{reply:?}"
                );
            }
            let counted = delayed();
            assert!(counted <= 1, "each write is counted once, not {counted} times");
            assert!(counted == 0 || began.elapsed() >= Duration::from_millis(97));
        }
    })
    .await;
    cluster.stop().await;
}

#[tokio::test]
async fn connections_per_address_are_limited() {
    let config = ZkConfig {
        max_connections_per_address: 2,
        ..ZkConfig::default()
    };
    let cluster = Cluster::start_with(1, config).await;
    let first = Client::connect(cluster.address(1)).await;
    let mut second = Client::connect(cluster.address(1)).await;
    let mut third = Stream::open(cluster.address(1)).await;
    assert_eq!(third.frame().await, None, "the server closes the connection");
    second.create("/a", PERSISTENT).await;
    drop(first);
    in_time("a connection is admitted again", async {
        loop {
            let mut again = Stream::open(cluster.address(1)).await;
            if again
                .try_connect(&new_session(MIN_SESSION_TIMEOUT))
                .await
                .is_some()
            {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    cluster.stop().await;
}

#[tokio::test]
async fn large_requests_are_bounded_in_memory_and_small_ones_are_not() {
    let config = ZkConfig {
        max_large_requests_bytes: 50_000,
        ..ZkConfig::default()
    };
    let cluster = Cluster::start_with(1, config).await;
    let mut other = Client::connect(cluster.address(1)).await;
    other.create("/a", PERSISTENT).await;
    // This client announces a large request and sends only its beginning.
    let mut slow = Client::connect(cluster.address(1)).await;
    let mut beginning = BytesMut::new();
    beginning.put_i32(40_000);
    slow.stream.write(&beginning).await;
    // The server may not have processed that beginning yet, so further clients try until one is rejected.
    in_time("a second large request is rejected", async {
        loop {
            let mut client = Client::connect(cluster.address(1)).await;
            // Half of the request, so that the server has to wait for the rest.
            let mut half = BytesMut::new();
            half.put_i32(40_000);
            half.put_bytes(0, 20_000);
            client.stream.write(&half).await;
            let ended = tokio::time::timeout(Duration::from_millis(100), client.stream.frame());
            if ended.await == Ok(None) {
                break;
            }
        }
    })
    .await;
    assert!(other.call(&set("/a", "small")).await.is_ok());
    drop(slow);
    in_time("a large request is accepted again", async {
        loop {
            let mut client = Client::connect(cluster.address(1)).await;
            client.send(&set("/a", &"x".repeat(40_000))).await;
            if let Received::Reply { outcome, .. } = client.receive(&set("/a", "")).await {
                assert!(outcome.is_ok(), "{outcome:?}");
                break;
            }
        }
    })
    .await;
    cluster.stop().await;
}
