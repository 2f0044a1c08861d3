//! Tests of the beginning of a connection.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use zk_front::ZkConfig;
use zk_wire::{ConnectRequest, ErrorCode, Reply, Request};

use crate::client::{Client, LONG, PERSISTENT, Stream, create, get, new_session};
use crate::cluster::{Cluster, MIN_SESSION_TIMEOUT};

#[tokio::test]
async fn granted_session_timeout_is_within_the_limits() {
    let cluster = Cluster::start(1).await;
    let bounds = cluster.node(1).config().sessions.clone();
    for (asked, granted) in [
        (Duration::ZERO, MIN_SESSION_TIMEOUT),
        (Duration::from_secs(4), Duration::from_secs(4)),
        (Duration::from_secs(100_000), bounds.max),
    ] {
        let client = Client::connect_for(cluster.address(1), asked).await;
        assert_eq!(client.session.timeout_ms as u128, granted.as_millis());
        assert_eq!(client.session.read_only, Some(false));
        assert_eq!(client.session.password.unwrap().len(), 16);
    }
    let negative = ConnectRequest {
        timeout_ms: -5,
        ..new_session(LONG)
    };
    let granted = Stream::open(cluster.address(1))
        .await
        .connect(&negative)
        .await
        .unwrap();
    assert_eq!(granted.timeout_ms as u128, MIN_SESSION_TIMEOUT.as_millis());
    cluster.stop().await;
}

/// Clients before 3.4 do not send the read-only flag, and do not expect it in the response.
#[tokio::test]
async fn old_client_gets_a_response_without_the_read_only_flag() {
    let cluster = Cluster::start(1).await;
    let old = ConnectRequest {
        read_only: None,
        ..new_session(LONG)
    };
    let mut out = BytesMut::new();
    old.write_frame(&mut out);
    assert_eq!(out.len(), 4 + 44);
    let mut stream = Stream::open(cluster.address(1)).await;
    stream.write(&out).await;
    assert_eq!(stream.frame().await.unwrap().len(), 36);
    cluster.stop().await;
}

/// Java's client sends auth, setWatches and queued requests before it receives the response.
#[tokio::test]
async fn requests_right_behind_the_connect_request_wait_for_the_session() {
    let cluster = Cluster::start(1).await;
    let mut out = BytesMut::new();
    new_session(LONG).write_frame(&mut out);
    let auth = Request::Auth {
        kind: 0,
        scheme: "digest".to_owned(),
        auth: Some(Bytes::from_static(b"user:password")),
    };
    auth.write_frame(zk_wire::xid::AUTH, &mut out);
    create("/first", PERSISTENT).write_frame(1, &mut out);
    get("/first", false).write_frame(2, &mut out);
    let mut stream = Stream::open(cluster.address(1)).await;
    // In small pieces that split the frames at arbitrary bytes.
    for piece in out.chunks(7) {
        stream.write(piece).await;
    }
    assert_eq!(stream.frame().await.unwrap().len(), 37);
    let mut xids = Vec::new();
    for _ in 0..3 {
        let body = stream.frame().await.unwrap();
        xids.push(i32::from_be_bytes(*body.first_chunk().unwrap()));
    }
    assert_eq!(xids, [zk_wire::xid::AUTH, 1, 2]);
    cluster.stop().await;
}

#[tokio::test]
async fn client_ahead_of_the_node_is_rejected() {
    let cluster = Cluster::start(1).await;
    let mut stream = Stream::open(cluster.address(1)).await;
    let ahead = ConnectRequest {
        last_zxid_seen: 1_000_000,
        ..new_session(LONG)
    };
    assert_eq!(stream.connect(&ahead).await, None);
    assert_eq!(
        cluster.node(1).read(|store| store.sessions()),
        [],
        "no session was created"
    );
    cluster.stop().await;
}

#[tokio::test]
async fn connection_of_a_foreign_program_is_closed() {
    let config = ZkConfig {
        handshake_timeout: Duration::from_millis(300),
        ..ZkConfig::default()
    };
    let cluster = Cluster::start_with(1, config).await;
    let mut too_long = BytesMut::new();
    too_long.put_i32(0x10_0000);
    let mut negative = BytesMut::new();
    negative.put_i32(-7);
    let mut short = BytesMut::new();
    short.put_i32(3);
    short.put_slice(b"abc");
    for bytes in [
        &too_long[..],
        &negative[..],
        &short[..],
        b"GET / HTTP/1.1\r\n\r\n",
        b"ab",
        b"",
    ] {
        let mut stream = Stream::open(cluster.address(1)).await;
        stream.write(bytes).await;
        assert_eq!(stream.rest().await, b"");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn oversized_request_ends_the_connection() {
    let cluster = Cluster::start(1).await;
    let mut client = Client::connect(cluster.address(1)).await;
    let mut header = BytesMut::new();
    header.put_i32(0x10_0000);
    client.stream.write(&header).await;
    assert_eq!(client.stream.frame().await, None);
    // A request of the maximum size is served.
    let mut client = Client::connect(cluster.address(1)).await;
    client.create("/large", PERSISTENT).await;
    let overhead = "/large".len() + 4 + 4 + 4 + 8;
    let largest = "x".repeat(0xf_ffff - overhead);
    assert!(matches!(
        client.call(&crate::client::set("/large", &largest)).await,
        Ok(Reply::Stat(_))
    ));
    assert_eq!(client.data("/large").await, Ok(largest));
    assert_eq!(client.data("/none").await, Err(ErrorCode::NO_NODE));
    cluster.stop().await;
}
