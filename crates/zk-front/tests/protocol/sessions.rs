//! Sessions that move, end, and are kept alive.

use std::time::Duration;

use bytes::Bytes;
use zk_wire::{ConnectRequest, ErrorCode, Reply, Request};
use znode_store::SessionId;

use crate::client::{Came, Client, EPHEMERAL, PERSISTENT, create, set};
use crate::cluster::{Cluster, SHORTEST, until};

fn id_of(client: &Client) -> SessionId {
    SessionId(client.session.session_id.cast_unsigned())
}

#[tokio::test]
async fn a_session_moves_to_another_node_and_its_older_connection_ends() {
    let cluster = Cluster::start(3).await;
    let mut first = Client::connect(cluster.address(1)).await;
    first.create("/mine", EPHEMERAL).await;
    let mut second = Client::resume(cluster.address(2), &first.ticket()).await.unwrap();
    assert_eq!(second.session, first.session);
    assert_eq!(first.receive(&Request::Ping).await, Came::End);
    assert_eq!(second.data("/mine").await, Ok("new".to_owned()));
    // And back, to the node where it was.
    let mut third = Client::resume(cluster.address(1), &second.ticket())
        .await
        .unwrap();
    assert_eq!(second.receive(&Request::Ping).await, Came::End);
    assert!(third.call(&set("/mine", "still")).await.is_ok());
    cluster.stop().await;
}

/// What an older connection has still to say comes after the newer one has spoken: it must not be carried out.
#[tokio::test]
async fn what_an_older_connection_has_sent_is_never_carried_out_behind_a_newer_ones() {
    let cluster = Cluster::start(3).await;
    for round in 0..20 {
        let path = format!("/order-{round}");
        let mut first = Client::connect(cluster.address(1)).await;
        first.create(&path, PERSISTENT).await;
        let requests: Vec<_> = (0..200)
            .map(|number| set(&path, &format!("old {number}")))
            .collect();
        let ticket = first.ticket();
        first.send_all(&requests).await;
        let mut second = Client::resume(cluster.address(2), &ticket).await.unwrap();
        assert!(second.call(&set(&path, "new")).await.is_ok());
        // All of the first's are over when its connection is.
        while first.receive(&requests[0]).await != Came::End {}
        let barrier = Request::Sync { path: path.clone() };
        assert!(second.call(&barrier).await.is_ok());
        assert_eq!(second.data(&path).await, Ok("new".to_owned()), "round {round}");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn who_does_not_know_the_password_gets_nothing_and_disturbs_nobody() {
    let cluster = Cluster::start(1).await;
    let mut client = Client::connect(cluster.address(1)).await;
    client.create("/mine", EPHEMERAL).await;
    let ticket = client.ticket();
    for password in [Some(&[0; 16][..]), Some(&[1; 3]), Some(&[]), None] {
        let wrong = ConnectRequest {
            password: password.map(Bytes::copy_from_slice),
            ..ticket.clone()
        };
        assert!(Client::resume(cluster.address(1), &wrong).await.is_none());
    }
    for session_id in [1, -1, i64::MIN, i64::MAX] {
        let wrong = ConnectRequest {
            session_id,
            ..ticket.clone()
        };
        assert!(Client::resume(cluster.address(1), &wrong).await.is_none());
    }
    assert_eq!(client.data("/mine").await, Ok("new".to_owned()));
    cluster.stop().await;
}

#[tokio::test]
async fn a_session_that_is_closed_is_over_everywhere() {
    let cluster = Cluster::start(3).await;
    let mut client = Client::connect(cluster.address(1)).await;
    client.create("/mine", EPHEMERAL).await;
    let ticket = client.ticket();
    assert_eq!(client.call(&Request::CloseSession).await, Ok(Reply::Done));
    assert_eq!(client.receive(&Request::Ping).await, Came::End);
    let mut other = Client::connect(cluster.address(2)).await;
    let sync = Request::Sync { path: "/".to_owned() };
    assert!(other.call(&sync).await.is_ok());
    assert_eq!(other.data("/mine").await, Err(ErrorCode::NO_NODE));
    assert!(Client::resume(cluster.address(2), &ticket).await.is_none());
    cluster.stop().await;
}

#[tokio::test]
async fn pings_and_requests_keep_a_session_and_silence_ends_it() {
    /// Long enough for a machine that has other things to do.
    const TIMEOUT: Duration = Duration::from_secs(3);
    const BEATS: u32 = 6;
    let cluster = Cluster::start(3).await;
    let mut pings = Client::connect_for(cluster.address(1), TIMEOUT).await;
    let mut reads = Client::connect_for(cluster.address(2), TIMEOUT).await;
    let mut writes = Client::connect_for(cluster.address(3), TIMEOUT).await;
    let mut silent = Client::connect_for(cluster.address(3), SHORTEST).await;
    let lives = |client: &Client| {
        let id = id_of(client);
        cluster.node(1).read(|store| store.session(id).is_some())
    };
    let mut beats = tokio::time::interval(TIMEOUT / BEATS);
    writes.create("/w", PERSISTENT).await;
    for _ in 0..3 * BEATS {
        beats.tick().await;
        assert_eq!(pings.call(&Request::Ping).await, Ok(Reply::Done));
        assert_eq!(reads.data("/none").await, Err(ErrorCode::NO_NODE));
        assert!(writes.call(&set("/w", "x")).await.is_ok());
    }
    assert!(lives(&pings) && lives(&reads) && lives(&writes));
    until("the silent one's session ends", || !lives(&silent)).await;
    assert_eq!(
        silent.receive(&Request::Ping).await,
        Came::End,
        "and its connection with it"
    );
    cluster.stop().await;
}

/// The node that a client is connected to dies: its session and what it owns live on.
#[tokio::test]
async fn a_session_survives_the_loss_of_its_node() {
    let mut cluster = Cluster::start(3).await;
    let mut client = Client::connect(cluster.address(1)).await;
    client.create("/mine", EPHEMERAL).await;
    let ticket = client.ticket();
    cluster.lose(1).await;
    let mut client = Client::resume(cluster.address(2), &ticket).await.unwrap();
    assert_eq!(client.data("/mine").await, Ok("new".to_owned()));
    assert!(client.call(&set("/mine", "moved")).await.is_ok());
    cluster.stop().await;
}

#[tokio::test]
async fn a_stopping_node_answers_what_it_was_asked() {
    let cluster = Cluster::start(3).await;
    let follower = {
        let leader = cluster.leader().await;
        *cluster.served.keys().find(|id| **id != leader).unwrap()
    };
    let mut client = Client::connect(cluster.address(follower)).await;
    let request = create("/last", PERSISTENT);
    let sent = client.send(&request).await;
    let node = cluster.node(follower).clone();
    until("it is under way", || node.read(|store| store.node_count()) > 0).await;
    let asked = tokio::spawn(async move {
        let mut came = client.receive(&request).await;
        if let Came::Reply { xid, .. } = &came {
            assert_eq!(*xid, sent);
            came = client.receive(&request).await;
        }
        came
    });
    tokio::time::timeout(Duration::from_secs(20), cluster.stop())
        .await
        .unwrap();
    assert_eq!(asked.await.unwrap(), Came::End);
}
