//! Paths as long and as deep as a packet allows, and the limits that an operator sets.

use zk_front::ZkConfig;
use zk_wire::{ErrorCode, Reply, Request, event_type};
use znode_store::PathBounds;

use crate::client::{Client, EPHEMERAL, PERSISTENT, SEQUENTIAL, create, delete, event, exists, get, set};
use crate::cluster::Cluster;

const PERSISTENT_RECURSIVE: i32 = 1;

#[tokio::test]
async fn paths_of_a_hundred_thousand_bytes_work() {
    let cluster = Cluster::start(3).await;
    let mut client = Client::connect(cluster.address(1)).await;
    // Four hundred levels, and one more below them.
    let name = "n".repeat(249);
    let mut path = String::new();
    for _ in 0..400 {
        path = format!("{path}/{name}");
        client.create(&path, PERSISTENT).await;
    }
    assert_eq!(path.len(), 100_000);
    // Connected only now: it sends no heartbeats, and the creations may take longer than its session lives.
    let mut other = Client::connect(cluster.address(2)).await;
    let watch = Request::AddWatch {
        path: path.clone(),
        mode: PERSISTENT_RECURSIVE,
    };
    client.call(&watch).await.unwrap();
    let first = other.create(&format!("{path}/q-"), EPHEMERAL | SEQUENTIAL).await;
    assert!(first == format!("{path}/q-0000000000"));
    assert!(client.notification().await == event(event_type::NODE_CREATED, &first));
    other.call(&set(&first, "changed")).await.unwrap();
    assert!(client.notification().await == event(event_type::NODE_DATA_CHANGED, &first));
    assert_eq!(client.data(&first).await.unwrap(), "changed");
    let multi = Request::Multi(vec![
        create(&format!("{path}/q-"), EPHEMERAL | SEQUENTIAL),
        delete(&format!("{path}/q-0000000001")),
        delete(&first),
    ]);
    other.call(&multi).await.unwrap();
    let second = format!("{path}/q-0000000001");
    for expected in [
        event(event_type::NODE_CREATED, &second),
        event(event_type::NODE_DELETED, &second),
        event(event_type::NODE_DELETED, &first),
    ] {
        assert!(client.notification().await == expected);
    }
    // Ephemeral znodes are deleted with their session.
    let last = other.create(&format!("{path}/last"), EPHEMERAL).await;
    assert!(client.notification().await == event(event_type::NODE_CREATED, &last));
    other.call(&Request::CloseSession).await.unwrap();
    assert!(client.notification().await == event(event_type::NODE_DELETED, &last));
    assert_eq!(client.call(&get(&last, false)).await, Err(ErrorCode::NO_NODE));
    let (deleted, heard) = client.call_with_notifications(&delete(&path)).await;
    assert!(deleted.is_ok() && heard == [event(event_type::NODE_DELETED, &path)]);
    cluster.stop().await;
}

#[tokio::test]
async fn paths_may_have_hundreds_of_components_or_one_large_one() {
    let cluster = Cluster::start(1).await;
    let mut client = Client::connect(cluster.address(1)).await;
    let mut path = String::new();
    for _ in 0..600 {
        path += "/d";
        client.create(&path, PERSISTENT).await;
    }
    client.call(&exists(&path, true)).await.unwrap();
    let (deleted, heard) = client.call_with_notifications(&delete(&path)).await;
    assert!(deleted.is_ok() && heard == [event(event_type::NODE_DELETED, &path)]);
    let long = format!("/{}", "l".repeat(1_048_000));
    let created = client.create(&long, PERSISTENT | SEQUENTIAL).await;
    assert!(created == format!("{long}0000000001"), "{} bytes", created.len());
    cluster.stop().await;
}

#[tokio::test]
async fn configured_path_limits_apply_to_creates() {
    let config = ZkConfig {
        paths: PathBounds { bytes: 20, depth: 2 },
        ..ZkConfig::default()
    };
    let cluster = Cluster::start_with(1, config).await;
    let mut client = Client::connect(cluster.address(1)).await;
    client.create("/a", PERSISTENT).await;
    client.create("/a/b", PERSISTENT).await;
    let refused = Err(ErrorCode::BAD_ARGUMENTS);
    for (path, flags) in [
        ("/a/b/c", PERSISTENT),
        ("/aaaaaaaaaaaaaaaaaaaa", PERSISTENT),
        ("/aaaaaaaaaa", SEQUENTIAL),
    ] {
        assert_eq!(client.call(&create(path, flags)).await, refused, "{path}");
    }
    client.create("/aaaaaaaaa", SEQUENTIAL).await;
    let multi = Request::Multi(vec![create("/c", PERSISTENT), create("/a/b/c", PERSISTENT)]);
    let Ok(Reply::Results(results)) = client.call(&multi).await else {
        panic!("a multi has results")
    };
    assert!(
        matches!(results[1], zk_wire::MultiResult::Error(ErrorCode::BAD_ARGUMENTS)),
        "{results:?}"
    );
    // Reads of missing znodes are not limited.
    assert_eq!(client.call(&get("/a/b/c", false)).await, Err(ErrorCode::NO_NODE));
    cluster.stop().await;
}
