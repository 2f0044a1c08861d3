//! Notifications precede every reply that shows the change, and none is missed.

use zk_wire::{ErrorCode, Reply, Request, SetWatches, event_type};

use crate::client::{Client, EPHEMERAL, PERSISTENT, create, delete, event, exists, get, set, sync};
use crate::cluster::Cluster;

#[tokio::test]
async fn notification_precedes_the_reply_that_shows_the_change() {
    let cluster = Cluster::start(3).await;
    let mut writer = Client::connect(cluster.address(1)).await;
    let mut reader = Client::connect(cluster.address(2)).await;
    writer.create("/a", PERSISTENT).await;
    assert_eq!(reader.call(&sync()).await, Ok(Reply::Path("/".to_owned())));
    for round in 0..50 {
        let data = format!("{round}");
        assert!(reader.call(&get("/a", true)).await.is_ok());
        writer.call(&set("/a", &data)).await.unwrap();
        let mut heard = Vec::new();
        loop {
            let (outcome, more) = reader.call_with_notifications(&get("/a", false)).await;
            heard.extend(more);
            let Ok(Reply::Data(now, _)) = outcome else {
                panic!("{outcome:?}")
            };
            if now.unwrap() == data {
                break;
            }
        }
        assert_eq!(heard, [event(event_type::NODE_DATA_CHANGED, "/a")]);
    }
    cluster.stop().await;
}

#[tokio::test]
async fn notifications_of_one_command_arrive_in_order() {
    const AT_ONCE: usize = 300;
    let cluster = Cluster::start(3).await;
    let mut writer = Client::connect(cluster.address(1)).await;
    let mut watcher = Client::connect(cluster.address(2)).await;
    writer.create("/a", PERSISTENT).await;
    assert!(watcher.call(&sync()).await.is_ok());
    // Persistent and recursive.
    let add = Request::AddWatch {
        path: "/a".to_owned(),
        mode: 1,
    };
    assert_eq!(watcher.call(&add).await, Ok(Reply::Number(0)));
    let creates = (0..AT_ONCE).map(|number| create(&format!("/a/n{number}"), PERSISTENT));
    let multi = Request::Multi(creates.collect());
    assert!(writer.call(&multi).await.is_ok());
    for number in 0..AT_ONCE {
        let created = event(event_type::NODE_CREATED, &format!("/a/n{number}"));
        assert_eq!(watcher.notification().await, created);
    }
    // A later change is notified, too, and none is notified twice.
    writer.call(&set("/a/n0", "x")).await.unwrap();
    assert_eq!(
        watcher.notification().await,
        event(event_type::NODE_DATA_CHANGED, "/a/n0")
    );
    cluster.stop().await;
}

#[tokio::test]
async fn reconnected_client_is_notified_of_missed_changes() {
    let cluster = Cluster::start(3).await;
    let mut other = Client::connect(cluster.address(3)).await;
    for path in ["/changed", "/deleted", "/same", "/parent"] {
        other.create(path, PERSISTENT).await;
    }
    let mut client = Client::connect(cluster.address(1)).await;
    assert!(client.call(&sync()).await.is_ok());
    client.create("/mine", EPHEMERAL).await;
    let resume_request = client.resume_request();
    drop(client);
    other.call(&set("/changed", "x")).await.unwrap();
    other.call(&delete("/deleted")).await.unwrap();
    other.call(&create("/created", PERSISTENT)).await.unwrap();
    other.call(&create("/parent/child", PERSISTENT)).await.unwrap();
    let mut client = Client::resume(cluster.address(2), &resume_request).await.unwrap();
    let list = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
    let again = Request::SetWatches2 {
        relative_zxid: resume_request.last_zxid_seen,
        watches: SetWatches {
            data: list(&["/changed", "/deleted", "/same"]),
            exist: list(&["/created", "/none"]),
            child: list(&["/parent"]),
            persistent: list(&["/same"]),
            persistent_recursive: list(&["/parent"]),
        },
    };
    let (outcome, mut heard) = client.call_with_notifications(&again).await;
    assert_eq!(outcome, Ok(Reply::Done));
    heard.sort();
    let mut missed = [
        event(event_type::NODE_DATA_CHANGED, "/changed"),
        event(event_type::NODE_DELETED, "/deleted"),
        event(event_type::NODE_CREATED, "/created"),
        event(event_type::NODE_CHILDREN_CHANGED, "/parent"),
    ];
    missed.sort();
    assert_eq!(heard, missed);
    // The other watches are armed.
    other.call(&create("/none", PERSISTENT)).await.unwrap();
    assert_eq!(
        client.notification().await,
        event(event_type::NODE_CREATED, "/none")
    );
    other
        .call(&create("/parent/child/below", PERSISTENT))
        .await
        .unwrap();
    assert_eq!(
        client.notification().await,
        event(event_type::NODE_CREATED, "/parent/child/below")
    );
    other.call(&set("/same", "y")).await.unwrap();
    // Watches of several kinds cause one notification: the client distributes it.
    assert_eq!(
        client.notification().await,
        event(event_type::NODE_DATA_CHANGED, "/same")
    );
    let seen = client.data("/mine").await;
    assert_eq!(seen, Ok("new".to_owned()), "its ephemeral znode still exists");
    cluster.stop().await;
}

#[tokio::test]
async fn watches_can_be_checked_and_removed() {
    let cluster = Cluster::start(1).await;
    let mut client = Client::connect(cluster.address(1)).await;
    client.create("/a", PERSISTENT).await;
    let add = Request::AddWatch {
        path: "/a".to_owned(),
        mode: 0,
    };
    assert_eq!(client.call(&add).await, Ok(Reply::Number(0)));
    let on = |kind| {
        (
            Request::CheckWatches {
                path: "/a".to_owned(),
                kind,
            },
            Request::RemoveWatches {
                path: "/a".to_owned(),
                kind,
            },
        )
    };
    let (check, remove) = on(3);
    assert_eq!(client.call(&check).await, Ok(Reply::Done));
    let (outcome, heard) = client.call_with_notifications(&set("/a", "x")).await;
    assert!(outcome.is_ok());
    assert_eq!(heard, [event(event_type::NODE_DATA_CHANGED, "/a")]);
    assert_eq!(client.call(&remove).await, Ok(Reply::Done));
    assert_eq!(client.call(&check).await, Err(ErrorCode::NO_WATCHER));
    assert_eq!(client.call(&remove).await, Err(ErrorCode::NO_WATCHER));
    assert!(client.call(&set("/a", "y")).await.is_ok());
    // A watch of a missing znode fires when it is created.
    assert_eq!(client.call(&exists("/b", true)).await, Err(ErrorCode::NO_NODE));
    let (_, heard) = client.call_with_notifications(&create("/b", PERSISTENT)).await;
    assert_eq!(heard, [event(event_type::NODE_CREATED, "/b")]);
    cluster.stop().await;
}
