//! How a connection begins.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use zk_front::ZkConfig;
use zk_wire::{ConnectRequest, ErrorCode, Reply, Request};

use crate::client::{Client, LONG, PERSISTENT, Stream, create, get, new_session};
use crate::cluster::{Cluster, SHORTEST};

#[tokio::test]
async fn the_timeout_that_is_granted_lies_within_the_bounds() {
    let cluster = Cluster::start(1).await;
    let bounds = cluster.node(1).config().sessions.clone();
    for (asked, granted) in [
        (Duration::ZERO, SHORTEST),
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
    assert_eq!(granted.timeout_ms as u128, SHORTEST.as_millis());
    cluster.stop().await;
}

/// Clients before 3.4 do not say what they think of servers that only read, and do not expect to be told.
#[tokio::test]
async fn an_old_client_is_answered_in_its_own_words() {
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

/// Java's client sends auth and setWatches, and what it was asked meanwhile, before it is answered.
#[tokio::test]
async fn what_comes_right_behind_the_handshake_waits_for_the_session() {
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
    // In pieces, wherever they are cut.
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
async fn a_client_that_has_seen_more_than_the_node_is_sent_away() {
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
        "no session was left behind"
    );
    cluster.stop().await;
}

#[tokio::test]
async fn what_is_no_client_is_hung_up_on() {
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
async fn a_request_that_is_too_long_ends_the_connection() {
    let cluster = Cluster::start(1).await;
    let mut client = Client::connect(cluster.address(1)).await;
    let mut header = BytesMut::new();
    header.put_i32(0x10_0000);
    client.stream.write(&header).await;
    assert_eq!(client.stream.frame().await, None);
    // The longest that is allowed is not.
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
