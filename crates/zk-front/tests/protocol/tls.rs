//! Clients over TLS: who they are, and that what is too much for the socket at once comes all the same.

use bytes::Bytes;
use zk_front::ZkConfig;
use zk_wire::{AclEntry, CreateCall, ErrorCode, Reply, Request};

use crate::certificates::Certificates;
use crate::client::{Came, Client, PERSISTENT, Stream, create, get, set};
use crate::cluster::Cluster;

#[tokio::test]
async fn a_certificate_opens_what_is_for_its_subject() {
    let certificates = Certificates::new();
    let cluster = Cluster::start_secured(1, ZkConfig::default(), Some(certificates.server())).await;
    let at = cluster.address(1);
    let mut orders = Client::connect_secured(at, &certificates.client(Some("orders"))).await;
    let mut other = Client::connect_secured(at, &certificates.client(Some("other"))).await;
    let mut nobody = Client::connect_secured(at, &certificates.client(None)).await;
    let secret = Request::Create {
        call: CreateCall::Create,
        path: "/secret".to_owned(),
        data: Some(Bytes::from_static(b"s")),
        acl: Some(vec![AclEntry {
            perms: 31,
            scheme: "x509".to_owned(),
            id: "CN=orders".to_owned(),
        }]),
        flags: PERSISTENT,
    };
    assert!(orders.call(&secret).await.is_ok());
    assert_eq!(orders.data("/secret").await.as_deref(), Ok("s"));
    assert_eq!(other.data("/secret").await, Err(ErrorCode::NO_AUTH));
    assert_eq!(nobody.data("/secret").await, Err(ErrorCode::NO_AUTH));

    // Who cannot prove it cannot say it either.
    let auth = Request::Auth {
        kind: 0,
        scheme: "x509".to_owned(),
        auth: Some(Bytes::from_static(b"CN=orders")),
    };
    assert!(
        other.call(&auth).await.is_ok(),
        "it has a certificate, of its own"
    );
    assert_eq!(other.data("/secret").await, Err(ErrorCode::NO_AUTH));
    assert_eq!(nobody.call(&auth).await, Err(ErrorCode::AUTH_FAILED));
    cluster.stop().await;
}

#[tokio::test]
async fn without_tls_nobody_is_served_and_words_are_answered_with_it() {
    let certificates = Certificates::new();
    let cluster = Cluster::start_secured(1, ZkConfig::default(), Some(certificates.server())).await;
    let mut plain = Stream::open(cluster.address(1)).await;
    plain.write(b"srvr").await;
    let said = plain.rest().await;
    assert!(
        !String::from_utf8_lossy(&said).contains("Zookeeper version"),
        "{said:?}"
    );

    let mut secured = Stream::open_secured(cluster.address(1), &certificates.client(None)).await;
    secured.write(b"srvr").await;
    let said = secured.rest().await;
    assert!(
        String::from_utf8_lossy(&said).starts_with("Zookeeper version"),
        "{said:?}"
    );
    cluster.stop().await;
}

#[tokio::test]
async fn what_the_socket_has_no_room_for_comes_later() {
    let certificates = Certificates::new();
    let cluster = Cluster::start_secured(1, ZkConfig::default(), Some(certificates.server())).await;
    asks_for_much(Client::connect_secured(cluster.address(1), &certificates.client(None)).await).await;
    cluster.stop().await;

    let cluster = Cluster::start(1).await;
    asks_for_much(Client::connect(cluster.address(1)).await).await;
    cluster.stop().await;
}

async fn asks_for_much(mut client: Client) {
    client.create("/large", PERSISTENT).await;
    let large = "x".repeat(900_000);
    assert!(client.call(&set("/large", &large)).await.is_ok());
    // Far more than the buffers of sockets hold, asked for before anything is read.
    let look = get("/large", false);
    let sent = client.send_all(&vec![look.clone(); 30]).await;
    for expected in sent {
        let Came::Reply { xid, outcome, .. } = client.receive(&look).await else {
            panic!("a reply was left out");
        };
        let Ok(Reply::Data(Some(data), _)) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!((xid, data.len()), (expected, large.len()));
    }
    assert!(client.call(&create("/after", PERSISTENT)).await.is_ok());
    assert!(client.call(&Request::CloseSession).await.is_ok());
    assert_eq!(client.receive(&Request::Ping).await, Came::End);
}
