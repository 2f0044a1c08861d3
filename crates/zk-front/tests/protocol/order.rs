//! Requests of one connection: carried out and answered in their order.

use zk_wire::{ErrorCode, Reply, Request, event_type};

use crate::client::{
    Came, Client, EPHEMERAL, PERSISTENT, SEQUENTIAL, create, delete, event, exists, get, set, sync,
};
use crate::cluster::Cluster;

#[tokio::test]
async fn requests_that_do_not_wait_for_each_other_are_carried_out_in_their_order() {
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
        let Came::Reply { xid, zxid, outcome } = client.receive(request).await else {
            panic!("nothing else comes");
        };
        assert_eq!(xid, sent);
        assert!(zxid >= last, "a position goes back");
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
async fn what_is_refused_keeps_its_place_among_what_is_not() {
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
        let Came::Reply { xid, outcome, .. } = client.receive(request).await else {
            panic!("nothing else comes");
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
async fn whoever_sends_more_than_may_wait_is_served_all_the_same() {
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
        let Came::Reply { outcome, .. } = came else {
            panic!("{came:?}")
        };
        assert_eq!(outcome, Ok(Reply::Path(format!("/q/n{number:010}"))));
    }
    cluster.stop().await;
}

#[tokio::test]
async fn the_end_of_a_session_comes_after_all_that_was_asked_before_and_tells_of_its_own_znodes_first() {
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
    let mut came: Vec<Came> = Vec::new();
    while came.last() != Some(&Came::End) {
        let answered = came.iter().filter(|came| matches!(came, Came::Reply { .. }));
        let next = &requests[answered.count().min(requests.len() - 1)];
        came.push(client.receive(next).await);
    }
    let told: Vec<_> = came
        .iter()
        .filter_map(|came| match came {
            Came::Notification { event, .. } => Some(event.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(
        told,
        [
            event(event_type::NODE_DATA_CHANGED, "/gone"),
            event(event_type::NODE_DELETED, "/gone")
        ]
    );
    let answered = came
        .iter()
        .filter(|came| matches!(came, Came::Reply { .. }))
        .count();
    assert_eq!(answered, 4, "what comes behind the end is not answered");
    // The last word before the end is the answer to it, with its position.
    assert!(
        matches!(
            came[came.len() - 2],
            Came::Reply {
                xid: 5,
                outcome: Ok(Reply::Done),
                ..
            }
        ),
        "{came:?}"
    );
    cluster.stop().await;
}
