//! A TLS port and a plain port side by side: they share the tree, the sessions and the connection limits; and
//! credentials that the plain port rejects.

use access_token::TokenText;
use bytes::Bytes;
use zk_front::FourLetterWord;
use zk_front::{Protection, ZkConfig};
use zk_wire::{ErrorCode, Reply, Request};
use znode_store::{AccessCommand, Command, Identities, Identity, PathGrant, Rights, ZPath};

use crate::certificates::Certificates;
use crate::client::{Client, EPHEMERAL, LONG, PERSISTENT, Received, Stream};
use crate::cluster::{Cluster, in_time, until};

/// Digest of `super:test`, as ZooKeeper configures it.
const SUPER_DIGEST: &str = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=";

fn show(scheme: &str, shown: &str) -> Request {
    Request::Auth {
        kind: 0,
        scheme: scheme.to_owned(),
        auth: Some(Bytes::copy_from_slice(shown.as_bytes())),
    }
}

#[tokio::test]
async fn session_moves_from_the_plain_port_to_tls_and_back() {
    let certificates = Certificates::new();
    let config = ZkConfig {
        four_letter_words: FourLetterWord::ALL.to_vec(),
        ..ZkConfig::default()
    };
    let cluster = Cluster::start_at_two_ports(config, certificates.server(), Protection::Exposed).await;
    let tls = certificates.client(None);
    let mut client = Client::connect(cluster.plain()).await;
    client.create("/held", EPHEMERAL).await;

    let secured = Stream::open_secured(cluster.address(1), &tls).await;
    let mut moved = Client::resume_on(secured, &client.resume_request())
        .await
        .unwrap();
    assert_eq!(moved.session.session_id, client.session.session_id);
    assert_eq!(
        client.receive(&Request::Ping).await,
        Received::End,
        "the newer connection replaces it"
    );
    assert!(moved.data("/held").await.is_ok());
    let mut back = Client::resume(cluster.plain(), &moved.resume_request())
        .await
        .unwrap();
    assert!(back.data("/held").await.is_ok());

    // `conf` shows both ports as ZooKeeper does.
    let mut asks = Stream::open(cluster.plain()).await;
    asks.write(b"conf").await;
    let conf = String::from_utf8(asks.rest().await).unwrap();
    let ports = format!(
        "clientPort={}\nsecureClientPort={}\n",
        cluster.plain().port(),
        cluster.address(1).port()
    );
    assert!(conf.starts_with(&ports), "{conf}");
    cluster.stop().await;
}

#[tokio::test]
async fn each_port_accepts_only_its_own_protocol() {
    let certificates = Certificates::new();
    let config = ZkConfig::default();
    let cluster = Cluster::start_at_two_ports(config, certificates.server(), Protection::Trusted).await;
    let mut plain = Stream::open(cluster.address(1)).await;
    plain.write(b"srvr").await;
    let said = plain.rest().await;
    assert!(
        !String::from_utf8_lossy(&said).contains("Zookeeper version"),
        "{said:?}"
    );
    let socket = tokio::net::TcpStream::connect(cluster.plain()).await.unwrap();
    let tls = certificates.client(None);
    let called = in_time("the handshake is refused", tls.connect("127.0.0.1", socket)).await;
    assert!(called.is_err());
    cluster.stop().await;
}

#[tokio::test]
async fn both_ports_share_their_connection_limits() {
    let certificates = Certificates::new();
    let config = ZkConfig {
        max_connections: 2,
        ..ZkConfig::default()
    };
    let cluster = Cluster::start_at_two_ports(config, certificates.server(), Protection::Exposed).await;
    let secured = Client::connect_secured(cluster.address(1), &certificates.client(None)).await;
    let _plain = Client::connect(cluster.plain()).await;
    assert_eq!(cluster.served[&1].front.connections(), 2);
    let mut late = Stream::open(cluster.plain()).await;
    assert_eq!(late.frame().await, None, "the connection limit is reached");
    drop(secured);
    let front = &cluster.served[&1].front;
    until("a connection has ended", || front.metrics().counts().open == 1).await;
    Client::connect(cluster.plain()).await;
    cluster.stop().await;
}

/// Secures the cluster with an administrator's token, so that every client may open sessions.
async fn secure(cluster: &Cluster) -> String {
    let (id, hash, text) = TokenText::draw();
    let secure = AccessCommand::Secure {
        token: id,
        hash,
        description: "".into(),
        anonymous: Some(vec![PathGrant {
            prefix: ZPath::parse("/public").unwrap(),
            rights: Rights::ALL,
        }]),
    };
    let request = znode_store::Request {
        caller: Identities::new([Identity::Super]),
        ..znode_store::Request::anonymous(Command::Access(secure))
    };
    let applied = in_time("the cluster is secured", cluster.node(1).propose(request)).await;
    assert_eq!(applied.unwrap().outcome, Ok(znode_store::Reply::Secured));
    text
}

/// An eavesdropper on the network path could use them at every other port.
#[tokio::test]
async fn tokens_and_super_password_are_rejected_on_exposed_ports() {
    for protection in [Protection::Exposed, Protection::Trusted] {
        let certificates = Certificates::new();
        let config = ZkConfig {
            super_digest: Some(SUPER_DIGEST.to_owned()),
            ..ZkConfig::default()
        };
        let trusted = matches!(protection, Protection::Trusted);
        let cluster = Cluster::start_at_two_ports(config, certificates.server(), protection).await;
        let token = secure(&cluster).await;
        let tls = certificates.client(None);
        for secret in [show("token", &token), show("digest", "super:test")] {
            let mut secured = Client::connect_secured(cluster.address(1), &tls).await;
            assert_eq!(secured.call(&secret).await, Ok(Reply::Done));

            let mut plain = Client::connect(cluster.plain()).await;
            let expected = match trusted {
                true => Ok(Reply::Done),
                false => Err(ErrorCode::AUTH_FAILED),
            };
            assert_eq!(plain.call(&secret).await, expected, "{secret:?}");
            if !trusted {
                assert_eq!(plain.receive(&Request::Ping).await, Received::End);
            }
        }
        // An ordinary ZooKeeper password is accepted at every port.
        let mut plain = Client::connect(cluster.plain()).await;
        assert_eq!(plain.call(&show("digest", "user:test")).await, Ok(Reply::Done));
        cluster.stop().await;
    }
}

/// At the plain port no client has the identity of a certificate.
#[tokio::test]
async fn plain_port_has_no_certificate_identities() {
    let certificates = Certificates::new();
    let config = ZkConfig::default();
    let cluster = Cluster::start_at_two_ports(config, certificates.server(), Protection::Trusted).await;
    let tls = certificates.client(Some("orders"));
    let mut orders = Client::connect_secured(cluster.address(1), &tls).await;
    assert_eq!(orders.call(&show("x509", "")).await, Ok(Reply::Done));
    let mut plain = Client::connect_for(cluster.plain(), LONG).await;
    plain.create("/a", PERSISTENT).await;
    assert_eq!(
        plain.call(&show("x509", "CN=orders")).await,
        Err(ErrorCode::AUTH_FAILED)
    );
    cluster.stop().await;
}

#[tokio::test]
async fn both_ports_reject_clients_before_the_cluster_is_secured() {
    let certificates = Certificates::new();
    let config = ZkConfig {
        secured_only: true,
        ..ZkConfig::default()
    };
    let cluster = Cluster::start_at_two_ports(config, certificates.server(), Protection::Exposed).await;
    let mut early = Stream::open(cluster.plain()).await;
    assert_eq!(early.frame().await, None);
    secure(&cluster).await;
    Client::connect(cluster.plain()).await;
    cluster.stop().await;
}
