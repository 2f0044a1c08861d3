//! Clients over TLS: who they are, and that what is too much for the socket at once comes all the same.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use transport_security::issue::{Authority, Issued, Wanted};
use transport_security::{ClientCertificates, ClientTls, HandshakeBounds, PeerName, ServerTls};
use zk_front::ZkConfig;
use zk_wire::{AclEntry, CreateCall, ErrorCode, Reply, Request};

use crate::client::{Came, Client, PERSISTENT, Stream, create, get, set};
use crate::cluster::Cluster;

const DAY: Duration = Duration::from_secs(24 * 3600);

struct Certificates {
    dir: TempDir,
    authority: Authority,
}

impl Certificates {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (authority, issued) = Authority::new("test", DAY).unwrap();
        fs::write(dir.path().join("ca"), issued.certificate).unwrap();
        Self { dir, authority }
    }

    fn ca(&self) -> PathBuf {
        self.dir.path().join("ca")
    }

    fn put(&self, called: &str, Issued { certificate, key }: Issued) -> [PathBuf; 2] {
        let files = ["certificate", "key"].map(|ending| self.dir.path().join(format!("{called}.{ending}")));
        for (path, text) in files.iter().zip([certificate, key]) {
            fs::write(path, text).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        files
    }

    fn server(&self) -> ServerTls {
        let name = PeerName {
            cluster: "test".to_owned(),
            node: 1,
        };
        let wanted = Wanted::node(&name, &["127.0.0.1".to_owned()], DAY);
        let [certificate, key] = self.put("server", self.authority.issue(&wanted).unwrap());
        let clients = ClientCertificates::Optional(self.ca());
        ServerTls::new(
            "clients",
            &certificate,
            &key,
            clients,
            &[],
            HandshakeBounds::default(),
        )
        .unwrap()
    }

    /// A client with a certificate of this name, or without one.
    fn client(&self, name: Option<&str>) -> ClientTls {
        let files = name.map(|name| {
            let issued = self.authority.issue(&Wanted::client(name, DAY)).unwrap();
            self.put(name, issued)
        });
        let own = files
            .as_ref()
            .map(|[certificate, key]| (certificate.as_path(), key.as_path()));
        ClientTls::new(&self.ca(), own).unwrap()
    }
}

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
