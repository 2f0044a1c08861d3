//! Requests of one connection are applied and answered in order.

use bytes::Bytes;
use zk_front::ZkConfig;
use zk_wire::{ErrorCode, Reply, Request, event_type};

use crate::client::{
    Client, EPHEMERAL, PERSISTENT, Received, SEQUENTIAL, create, delete, event, exists, get, set, sync,
};
use crate::cluster::Cluster;

#[tokio::test]
async fn pipelined_requests_are_applied_in_order() {
    const ROUNDS: usize = 500;
    let cluster = Cluster::start(3).await;
    let follower = cluster
        .served
        .keys()
        .copied()
        .find(|id| cluster.node(*id).status().leader != Some(*id));
    let mut client = Client::connect(cluster.address(follower.unwrap())).await;
    let mut requests = vec![create("/a", PERSISTENT)];
    for round in 0..ROUNDS {
        requests.push(set("/a", &format!("{round}")));
        requests.push(get("/a", false));
        if round % 50 == 0 {
            requests.push(sync());
        }
    }
    let xids = client.send_all(&requests).await;
    let mut last = 0;
    let mut round = 0;
    for (request, sent) in requests.iter().zip(xids) {
        let Received::Reply { xid, zxid, outcome } = client.receive(request).await else {
            panic!("only replies are expected");
        };
        assert_eq!(xid, sent);
        assert!(zxid >= last, "the zxid goes back");
        last = zxid;
        if let Reply::Data(data, stat) = outcome.unwrap() {
            assert_eq!(data.unwrap(), format!("{round}"));
            assert_eq!(
                stat.mzxid, zxid,
                "the state as of that write, or a later one of the same client"
            );
            round += 1;
        }
    }
    assert_eq!(round, ROUNDS);
    cluster.stop().await;
}

#[tokio::test]
async fn rejected_requests_are_answered_in_order() {
    let cluster = Cluster::start(1).await;
    let mut client = Client::connect(cluster.address(1)).await;
    let bad_path = set("no/path", "x");
    let requests = [
        create("/a", PERSISTENT),
        bad_path.clone(),
        create("/a", PERSISTENT),
        Request::WhoAmI,
        delete("/a"),
        exists("/a", false),
        bad_path,
    ];
    let xids = client.send_all(&requests).await;
    let mut outcomes = Vec::new();
    for (request, sent) in requests.iter().zip(xids) {
        let Received::Reply { xid, outcome, .. } = client.receive(request).await else {
            panic!("only replies are expected");
        };
        assert_eq!(xid, sent);
        outcomes.push(outcome.err());
    }
    let bad = Some(ErrorCode::BAD_ARGUMENTS);
    let exists = Some(ErrorCode::NODE_EXISTS);
    assert_eq!(
        outcomes,
        [None, bad, exists, None, None, Some(ErrorCode::NO_NODE), bad]
    );
    cluster.stop().await;
}

#[tokio::test]
async fn requests_beyond_the_outstanding_limit_are_served() {
    const REQUESTS: usize = 2_000;
    let config = zk_front::ZkConfig {
        max_outstanding: 5,
        ..zk_front::ZkConfig::default()
    };
    let cluster = Cluster::start_with(1, config).await;
    let mut client = Client::connect(cluster.address(1)).await;
    client.create("/q", PERSISTENT).await;
    let request = create("/q/n", PERSISTENT | SEQUENTIAL);
    client.send_all(&vec![request.clone(); REQUESTS]).await;
    for number in 0..REQUESTS {
        let came = client.receive(&request).await;
        let Received::Reply { outcome, .. } = came else {
            panic!("{came:?}")
        };
        assert_eq!(outcome, Ok(Reply::Path(format!("/q/n{number:010}"))));
    }
    cluster.stop().await;
}

#[tokio::test]
async fn close_session_follows_earlier_requests_and_its_own_notifications() {
    let cluster = Cluster::start(1).await;
    let mut client = Client::connect(cluster.address(1)).await;
    client.create("/gone", EPHEMERAL).await;
    let requests = [
        exists("/gone", true),
        set("/gone", "last"),
        exists("/gone", true),
        Request::CloseSession,
        get("/gone", false),
    ];
    client.send_all(&requests).await;
    let mut came: Vec<Received> = Vec::new();
    while came.last() != Some(&Received::End) {
        let answered = came.iter().filter(|came| matches!(came, Received::Reply { .. }));
        let next = &requests[answered.count().min(requests.len() - 1)];
        came.push(client.receive(next).await);
    }
    let notifications: Vec<_> = came
        .iter()
        .filter_map(|came| match came {
            Received::Notification { event, .. } => Some(event.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(
        notifications,
        [
            event(event_type::NODE_DATA_CHANGED, "/gone"),
            event(event_type::NODE_DELETED, "/gone")
        ]
    );
    let answered = came
        .iter()
        .filter(|came| matches!(came, Received::Reply { .. }))
        .count();
    assert_eq!(answered, 4, "requests after the close are not answered");
    // The last frame is the reply to the close, with its zxid.
    assert!(
        matches!(
            came[came.len() - 2],
            Received::Reply {
                xid: 5,
                outcome: Ok(Reply::Done),
                ..
            }
        ),
        "{came:?}"
    );
    cluster.stop().await;
}

#[tokio::test]
async fn write_after_auth_does_not_overtake_earlier_writes() {
    const WRITES: usize = 800;
    let config = ZkConfig {
        super_digest: Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU=".to_owned()),
        ..ZkConfig::default()
    };
    let cluster = Cluster::start_with(1, config).await;
    let mut client = Client::connect(cluster.address(1)).await;
    client.create("/a", PERSISTENT).await;
    let mut requests: Vec<Request> = (0..WRITES).map(|round| set("/a", &format!("{round}"))).collect();
    // The superuser is another caller than the client without a name, and does not wait behind its queued writes.
    requests.push(Request::Auth {
        kind: 0,
        scheme: "digest".to_owned(),
        auth: Some(Bytes::from_static(b"super:test")),
    });
    requests.push(set("/a", "last"));
    let xids = client.send_all(&requests).await;
    for (request, sent) in requests.iter().zip(xids) {
        let Received::Reply { xid, outcome, .. } = client.receive(request).await else {
            panic!("only replies are expected");
        };
        assert_eq!(xid, sent);
        assert!(outcome.is_ok(), "{request:?}: {outcome:?}");
    }
    assert_eq!(client.data("/a").await.unwrap(), "last");
    cluster.stop().await;
}
