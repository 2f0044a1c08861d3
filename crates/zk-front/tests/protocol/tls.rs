//! Clients over TLS: their identities, and replies that exceed the socket's buffer.

use bytes::Bytes;
use zk_front::ZkConfig;
use zk_wire::{AclEntry, CreateCall, ErrorCode, Reply, Request};

use crate::certificates::Certificates;
use crate::client::{Client, PERSISTENT, Received, Stream, create, get, set};
use crate::cluster::Cluster;

#[tokio::test]
async fn certificate_grants_access_to_its_subject() {
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

    // The auth request cannot replace the certificate.
    let auth = Request::Auth {
        kind: 0,
        scheme: "x509".to_owned(),
        auth: Some(Bytes::from_static(b"CN=orders")),
    };
    assert!(
        other.call(&auth).await.is_ok(),
        "the client has a certificate of its own"
    );
    assert_eq!(other.data("/secret").await, Err(ErrorCode::NO_AUTH));
    assert_eq!(nobody.call(&auth).await, Err(ErrorCode::AUTH_FAILED));
    cluster.stop().await;
}

#[tokio::test]
async fn tls_port_rejects_plain_clients_and_answers_words_over_tls() {
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
async fn replies_beyond_the_socket_buffer_arrive_later() {
    let certificates = Certificates::new();
    let cluster = Cluster::start_secured(1, ZkConfig::default(), Some(certificates.server())).await;
    request_large_replies(Client::connect_secured(cluster.address(1), &certificates.client(None)).await)
        .await;
    cluster.stop().await;

    let cluster = Cluster::start(1).await;
    request_large_replies(Client::connect(cluster.address(1)).await).await;
    cluster.stop().await;
}

async fn request_large_replies(mut client: Client) {
    client.create("/large", PERSISTENT).await;
    let large = "x".repeat(900_000);
    assert!(client.call(&set("/large", &large)).await.is_ok());
    // Requests far more data than the socket buffers hold before reading anything.
    let read = get("/large", false);
    let sent = client.send_all(&vec![read.clone(); 30]).await;
    for expected in sent {
        let Received::Reply { xid, outcome, .. } = client.receive(&read).await else {
            panic!("a reply is missing");
        };
        let Ok(Reply::Data(Some(data), _)) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!((xid, data.len()), (expected, large.len()));
    }
    assert!(client.call(&create("/after", PERSISTENT)).await.is_ok());
    assert!(client.call(&Request::CloseSession).await.is_ok());
    assert_eq!(client.receive(&Request::Ping).await, Received::End);
}
