//! Tests of error replies.

use bytes::{BufMut, Bytes, BytesMut};
use zk_front::ZkConfig;
use zk_wire::{AclEntry, CreateCall, ErrorCode, MultiResult, Reply, Request};

use crate::client::{Client, PERSISTENT, Received, create, delete, get, set};
use crate::cluster::Cluster;

#[tokio::test]
async fn unknown_operation_ends_the_connection() {
    let cluster = Cluster::start(1).await;
    let lone_check = Request::Check {
        path: "/".to_owned(),
        version: -1,
    };
    for op in [10, 20, 999, -10, lone_check.op_code()] {
        let mut client = Client::connect(cluster.address(1)).await;
        let mut out = BytesMut::new();
        zk_wire::frame::write(&mut out, |to| {
            to.int(77);
            to.int(op);
            to.text("/");
            to.int(-1);
        });
        client.stream.write(&out).await;
        let Received::Reply { xid, outcome, .. } = client.receive(&Request::Ping).await else {
            panic!("a reply is expected");
        };
        assert_eq!((xid, outcome), (77, Err(ErrorCode::UNIMPLEMENTED)));
        assert_eq!(client.receive(&Request::Ping).await, Received::End);
    }
    cluster.stop().await;
}

#[tokio::test]
async fn malformed_request_is_rejected_and_the_next_one_is_served() {
    let cluster = Cluster::start(1).await;
    let mut client = Client::connect(cluster.address(1)).await;
    let mut out = BytesMut::new();
    out.put_i32(8 + 2);
    out.put_i32(5);
    out.put_i32(get("/", false).op_code());
    out.put_slice(b"ab");
    client.stream.write(&out).await;
    let Received::Reply { xid, outcome, .. } = client.receive(&Request::Ping).await else {
        panic!("a reply is expected");
    };
    assert_eq!((xid, outcome), (5, Err(ErrorCode::MARSHALLING_ERROR)));
    assert!(client.call(&get("/", false)).await.is_ok());
    cluster.stop().await;
}

#[tokio::test]
async fn failed_multi_has_a_result_for_each_item() {
    let cluster = Cluster::start(1).await;
    let mut client = Client::connect(cluster.address(1)).await;
    let multi = Request::Multi(vec![
        create("/a", PERSISTENT),
        set("/a", "x"),
        delete("/missing"),
        create("/b", PERSISTENT),
    ]);
    let results = [
        ErrorCode::OK,
        ErrorCode::OK,
        ErrorCode::NO_NODE,
        ErrorCode::RUNTIME_INCONSISTENCY,
    ];
    let results = results.map(MultiResult::Error).to_vec();
    assert_eq!(client.call(&multi).await, Ok(Reply::Results(results)));
    assert_eq!(client.data("/a").await, Err(ErrorCode::NO_NODE));
    // An item that is rejected before it reaches the state machine fails in its order, too.
    let multi = Request::Multi(vec![delete("/missing"), set("no/path", "x")]);
    let results = [ErrorCode::NO_NODE, ErrorCode::RUNTIME_INCONSISTENCY];
    let results = results.map(MultiResult::Error).to_vec();
    assert_eq!(client.call(&multi).await, Ok(Reply::Results(results)));
    assert_eq!(
        client.call(&Request::Multi(Vec::new())).await,
        Ok(Reply::Results(Vec::new()))
    );
    cluster.stop().await;
}

#[tokio::test]
async fn permissions_follow_the_authenticated_identities() {
    let config = ZkConfig {
        super_digest: Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU=".to_owned()),
        ..ZkConfig::default()
    };
    let cluster = Cluster::start_with(1, config).await;
    let mut alice = Client::connect(cluster.address(1)).await;
    let auth = |shown: &'static str| Request::Auth {
        kind: 0,
        scheme: "digest".to_owned(),
        auth: Some(Bytes::from_static(shown.as_bytes())),
    };
    let private = Request::Create {
        call: CreateCall::Create,
        path: "/private".to_owned(),
        data: None,
        acl: Some(vec![AclEntry {
            perms: 31,
            scheme: "auth".to_owned(),
            id: String::new(),
        }]),
        flags: PERSISTENT,
    };
    assert_eq!(
        alice.call(&private).await,
        Err(ErrorCode::INVALID_ACL),
        "not authenticated yet"
    );
    assert_eq!(alice.call(&auth("alice:secret")).await, Ok(Reply::Done));
    assert!(alice.call(&private).await.is_ok());
    let Ok(Reply::Identities(who)) = alice.call(&Request::WhoAmI).await else {
        panic!("whoAmI returns identities");
    };
    let pair = |scheme: &str, name: &str| (scheme.to_owned(), name.to_owned());
    // In the order of ZooKeeper's hash table.
    assert_eq!(who, [pair("digest", "alice"), pair("ip", "127.0.0.1")]);

    let mut bob = Client::connect(cluster.address(1)).await;
    assert_eq!(bob.data("/private").await, Err(ErrorCode::NO_AUTH));
    assert_eq!(bob.call(&auth("super:test")).await, Ok(Reply::Done));
    assert!(
        bob.call(&get("/private", false)).await.is_ok(),
        "the superuser bypasses the access control list"
    );

    let mut eve = Client::connect(cluster.address(1)).await;
    let unknown = Request::Auth {
        kind: 0,
        scheme: "sasl".to_owned(),
        auth: None,
    };
    assert_eq!(eve.call(&unknown).await, Err(ErrorCode::AUTH_FAILED));
    assert_eq!(eve.receive(&unknown).await, Received::End);
    cluster.stop().await;
}

#[tokio::test]
async fn unconfigured_features_are_rejected_as_in_zookeeper() {
    let cluster = Cluster::start(1).await;
    let mut client = Client::connect(cluster.address(1)).await;
    let reconfig = Request::Reconfig {
        joining_servers: None,
        leaving_servers: None,
        new_members: None,
        from_config: -1,
    };
    assert_eq!(client.call(&reconfig).await, Err(ErrorCode::RECONFIG_DISABLED));
    let sasl = Request::Sasl { token: None };
    assert_eq!(client.call(&sasl).await, Ok(Reply::Token(None)));
    cluster.stop().await;
}
