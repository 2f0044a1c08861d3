//! `lockgate cert`: its files are valid for nodes and clients.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use lockgate::transport_security::{ClientTls, HandshakeLimits, PeerTls, TlsFiles};
use tempfile::TempDir;

use crate::command_line::{fails, succeeds};

struct CertificateDir(TempDir);

impl CertificateDir {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn dir(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

#[tokio::test]
async fn authority_issues_certificates_of_nodes_and_clients() {
    let place = CertificateDir::new();
    let dir = place.dir();
    let node = [
        "cert",
        "node",
        "--dir",
        dir,
        "--cluster",
        "c 1",
        "--node",
        "3",
        "--host",
        "lock-3,192.0.2.3",
    ];
    assert!(
        fails(&node)
            .await
            .contains("`lockgate cert ca` creates an authority")
    );

    let said = succeeds(&["cert", "ca", "--dir", dir]).await;
    assert!(said.contains("lockgate cert node --dir"), "{said}");
    let said = succeeds(&node).await;
    assert!(said.contains("lockgate://c%201/node/3"), "{said}");
    assert!(
        said.contains("lock-3, 192.0.2.3") && said.contains("[tls]"),
        "{said}"
    );
    let said = succeeds(&["cert", "client", "--dir", dir, "--name", "Smith, Jane"]).await;
    assert!(
        said.contains("client-Smith__Jane.pem") && said.contains("curl --cacert"),
        "{said}"
    );

    for file in fs::read_dir(dir).unwrap() {
        let file = file.unwrap();
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{:?}", file.file_name());
    }
    let files = TlsFiles {
        certificate: place.file("node-3.pem"),
        key: place.file("node-3.key"),
        ca: place.file("ca.pem"),
    };
    let peer = PeerTls::new(&files, "c 1", 3, HandshakeLimits::default()).unwrap();
    assert_eq!(peer.own_name().to_string(), "lockgate://c%201/node/3");
    let (certificate, key) = (
        place.file("client-Smith__Jane.pem"),
        place.file("client-Smith__Jane.key"),
    );
    ClientTls::new(&files.ca, Some((&certificate, &key))).unwrap();
}

#[tokio::test]
async fn existing_files_are_never_replaced() {
    let place = CertificateDir::new();
    let dir = place.dir();
    succeeds(&["cert", "ca", "--dir", dir]).await;
    let made = fs::read(place.file("ca.key")).unwrap();
    let refused = fails(&["cert", "ca", "--dir", dir]).await;
    assert!(
        refused.contains("ca.pem already exists and is not replaced"),
        "{refused}"
    );
    assert_eq!(fs::read(place.file("ca.key")).unwrap(), made);

    // One existing file stops the command, which then writes nothing.
    fs::write(place.file("client-a.key"), "mine").unwrap();
    let refused = fails(&["cert", "client", "--dir", dir, "--name", "a"]).await;
    assert!(refused.contains("client-a.key already exists"), "{refused}");
    assert_eq!(fs::read_to_string(place.file("client-a.key")).unwrap(), "mine");
    assert!(!place.file("client-a.pem").exists());
}

#[tokio::test]
async fn host_that_no_certificate_can_contain_is_rejected() {
    let place = CertificateDir::new();
    let dir = place.dir();
    succeeds(&["cert", "ca", "--dir", dir]).await;
    let node = |host| {
        [
            "cert",
            "node",
            "--dir",
            dir,
            "--cluster",
            "c",
            "--node",
            "1",
            "--host",
            host,
        ]
    };
    let refused = fails(&node("lock-ä")).await;
    assert!(
        refused.contains("cannot be written in a certificate"),
        "{refused}"
    );
    assert!(!place.file("node-1.key").exists());
}
