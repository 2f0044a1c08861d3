//! Sessions that move, end, and are renewed.

use std::time::Duration;

use bytes::Bytes;
use zk_wire::{ConnectRequest, ErrorCode, Reply, Request};
use znode_store::SessionId;

use crate::client::{Client, EPHEMERAL, PERSISTENT, Received, create, set};
use crate::cluster::{Cluster, MIN_SESSION_TIMEOUT, until};

fn id_of(client: &Client) -> SessionId {
    SessionId(client.session.session_id.cast_unsigned())
}

#[tokio::test]
async fn session_moves_to_another_node_and_its_older_connection_ends() {
    let cluster = Cluster::start(3).await;
    let mut first = Client::connect(cluster.address(1)).await;
    first.create("/mine", EPHEMERAL).await;
    let mut second = Client::resume(cluster.address(2), &first.resume_request())
        .await
        .unwrap();
    assert_eq!(second.session, first.session);
    assert_eq!(first.receive(&Request::Ping).await, Received::End);
    assert_eq!(second.data("/mine").await, Ok("new".to_owned()));
    // And back to the first node.
    let mut third = Client::resume(cluster.address(1), &second.resume_request())
        .await
        .unwrap();
    assert_eq!(second.receive(&Request::Ping).await, Received::End);
    assert!(third.call(&set("/mine", "still")).await.is_ok());
    cluster.stop().await;
}

/// Requests of the older connection that arrive after the newer one has sent a request must not be applied.
#[tokio::test]
async fn requests_of_an_older_connection_are_never_applied_after_those_of_a_newer_one() {
    let cluster = Cluster::start(3).await;
    for round in 0..20 {
        let path = format!("/order-{round}");
        let mut first = Client::connect(cluster.address(1)).await;
        first.create(&path, PERSISTENT).await;
        let requests: Vec<_> = (0..200)
            .map(|number| set(&path, &format!("old {number}")))
            .collect();
        let resume_request = first.resume_request();
        first.send_all(&requests).await;
        let mut second = Client::resume(cluster.address(2), &resume_request).await.unwrap();
        assert!(second.call(&set(&path, "new")).await.is_ok());
        // All requests of the first connection are finished when it ends.
        while first.receive(&requests[0]).await != Received::End {}
        let barrier = Request::Sync { path: path.clone() };
        assert!(second.call(&barrier).await.is_ok());
        assert_eq!(second.data(&path).await, Ok("new".to_owned()), "round {round}");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn wrong_password_is_rejected_without_effect_on_the_owner() {
    let cluster = Cluster::start(1).await;
    let mut client = Client::connect(cluster.address(1)).await;
    client.create("/mine", EPHEMERAL).await;
    let resume_request = client.resume_request();
    for password in [Some(&[0; 16][..]), Some(&[1; 3]), Some(&[]), None] {
        let wrong = ConnectRequest {
            password: password.map(Bytes::copy_from_slice),
            ..resume_request.clone()
        };
        assert!(Client::resume(cluster.address(1), &wrong).await.is_none());
    }
    for session_id in [1, -1, i64::MIN, i64::MAX] {
        let wrong = ConnectRequest {
            session_id,
            ..resume_request.clone()
        };
        assert!(Client::resume(cluster.address(1), &wrong).await.is_none());
    }
    assert_eq!(client.data("/mine").await, Ok("new".to_owned()));
    cluster.stop().await;
}

#[tokio::test]
async fn closed_session_has_ended_at_all_nodes() {
    let cluster = Cluster::start(3).await;
    let mut client = Client::connect(cluster.address(1)).await;
    client.create("/mine", EPHEMERAL).await;
    let resume_request = client.resume_request();
    assert_eq!(client.call(&Request::CloseSession).await, Ok(Reply::Done));
    assert_eq!(client.receive(&Request::Ping).await, Received::End);
    let mut other = Client::connect(cluster.address(2)).await;
    let sync = Request::Sync { path: "/".to_owned() };
    assert!(other.call(&sync).await.is_ok());
    assert_eq!(other.data("/mine").await, Err(ErrorCode::NO_NODE));
    assert!(
        Client::resume(cluster.address(2), &resume_request)
            .await
            .is_none()
    );
    cluster.stop().await;
}

#[tokio::test]
async fn pings_and_requests_renew_a_session_and_silence_ends_it() {
    /// Long enough for a busy machine.
    const TIMEOUT: Duration = Duration::from_secs(3);
    const STEPS_PER_TIMEOUT: u32 = 12;
    let cluster = Cluster::start(3).await;
    let mut pings = Client::connect_for(cluster.address(1), TIMEOUT).await;
    let mut reads = Client::connect_for(cluster.address(2), TIMEOUT).await;
    let mut writes = Client::connect_for(cluster.address(3), TIMEOUT).await;
    let mut silent = Client::connect_for(cluster.address(3), MIN_SESSION_TIMEOUT).await;
    // Asks the node of the silent client: the others may know earlier that its session has ended.
    let is_open = |client: &Client| {
        let id = id_of(client);
        cluster.node(3).read(|store| store.session(id).is_some())
    };
    let mut steps = tokio::time::interval(TIMEOUT / STEPS_PER_TIMEOUT);
    writes.create("/w", PERSISTENT).await;
    for _ in 0..3 * STEPS_PER_TIMEOUT {
        steps.tick().await;
        // At the same time: no client is silent while another one waits for its answer.
        let write = set("/w", "x");
        let answers = tokio::join!(
            pings.call(&Request::Ping),
            reads.data("/none"),
            writes.call(&write)
        );
        assert_eq!(answers.0, Ok(Reply::Done));
        assert_eq!(answers.1, Err(ErrorCode::NO_NODE));
        assert!(answers.2.is_ok());
    }
    assert!(is_open(&pings) && is_open(&reads) && is_open(&writes));
    until("the silent client's session ends", || !is_open(&silent)).await;
    assert_eq!(
        silent.receive(&Request::Ping).await,
        Received::End,
        "the connection ends with the session"
    );
    cluster.stop().await;
}

/// The node that a client is connected to fails: the session and its ephemeral znodes survive.
#[tokio::test]
async fn session_survives_the_loss_of_its_node() {
    let mut cluster = Cluster::start(3).await;
    let mut client = Client::connect(cluster.address(1)).await;
    client.create("/mine", EPHEMERAL).await;
    let resume_request = client.resume_request();
    cluster.lose(1).await;
    let mut client = Client::resume(cluster.address(2), &resume_request).await.unwrap();
    assert_eq!(client.data("/mine").await, Ok("new".to_owned()));
    assert!(client.call(&set("/mine", "moved")).await.is_ok());
    cluster.stop().await;
}

#[tokio::test]
async fn stopping_node_answers_pending_requests() {
    let cluster = Cluster::start(3).await;
    let follower = {
        let leader = cluster.leader().await;
        *cluster.served.keys().find(|id| **id != leader).unwrap()
    };
    let mut client = Client::connect(cluster.address(follower)).await;
    let request = create("/last", PERSISTENT);
    let sent = client.send(&request).await;
    let node = cluster.node(follower).clone();
    until("the request is applied", || {
        node.read(|store| store.node_count()) > 0
    })
    .await;
    let last_frame = tokio::spawn(async move {
        let mut came = client.receive(&request).await;
        if let Received::Reply { xid, .. } = &came {
            assert_eq!(*xid, sent);
            came = client.receive(&request).await;
        }
        came
    });
    tokio::time::timeout(Duration::from_secs(20), cluster.stop())
        .await
        .unwrap();
    assert_eq!(last_frame.await.unwrap(), Received::End);
}
