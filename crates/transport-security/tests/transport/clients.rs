//! Clients and nodes: whom a client believes, what a node learns of a client, and which version is spoken.

use std::path::Path;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;
use transport_security::issue::Wanted;
use transport_security::{ClientCertificates, ClientTls, HandshakeBounds, HandshakeError, ServerTls};

use crate::support::{Ca, DAY, duplex, node};

fn server(ca: &Ca, clients: ClientCertificates) -> ServerTls {
    let files = ca.issue("server", &node("c", 1));
    let bounds = HandshakeBounds::default();
    ServerTls::new(
        "HTTP",
        &files.certificate,
        &files.key,
        clients,
        &["http/1.1"],
        bounds,
    )
    .unwrap()
}

/// What the client makes of it, and whom the server takes it for.
async fn meet(
    client: &ClientTls,
    host: &str,
    server: &ServerTls,
) -> (Result<(), HandshakeError>, Result<Option<String>, HandshakeError>) {
    let (here, there) = duplex();
    let call = async {
        let mut stream = client.connect(host, here).await?;
        let mut greeting = [0; 1];
        stream.read_exact(&mut greeting).await?;
        Ok(())
    };
    let take = async {
        let (mut stream, client) = server.accept(there).await?;
        stream.write_all(b"!").await?;
        stream.flush().await?;
        Ok(client.and_then(|client| client.identity().map(str::to_owned)))
    };
    tokio::join!(call, take)
}

#[tokio::test]
async fn a_client_believes_the_host_that_it_called_and_no_other() {
    let ca = Ca::new();
    let server = server(&ca, ClientCertificates::Ignored);
    let client = ClientTls::new(&ca.ca(), None).unwrap();
    for host in ["localhost", "127.0.0.1"] {
        let (called, taken) = meet(&client, host, &server).await;
        assert!(called.is_ok(), "{host}: {called:?}");
        assert_eq!(taken.unwrap(), None);
    }
    for host in [
        "lock-1.example",
        "127.0.0.2",
        "[::1]",
        "node 1 of c",
        "node.1.of.c",
    ] {
        let (called, _) = meet(&client, host, &server).await;
        match called {
            Err(HandshakeError::NoHost(_)) => assert_eq!(host, "node 1 of c"),
            Err(HandshakeError::Certificate(error)) => {
                assert!(
                    error.to_string().contains("not valid for name"),
                    "{host}: {error}"
                );
            }
            other => panic!("{host}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_client_does_not_believe_another_authority() {
    let (ours, theirs) = (Ca::new(), Ca::new());
    let server = server(&theirs, ClientCertificates::Ignored);
    let client = ClientTls::new(&ours.ca(), None).unwrap();
    let (called, taken) = meet(&client, "localhost", &server).await;
    let refused = called.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "its certificate is not signed by the authority that is trusted here"
    );
    assert!(matches!(taken, Err(HandshakeError::Refused(_))), "{taken:?}");
}

fn showing(ca: &Ca, files: &transport_security::TlsFiles) -> ClientTls {
    ClientTls::new(&ca.ca(), Some((&files.certificate, &files.key))).unwrap()
}

#[tokio::test]
async fn a_client_is_known_by_its_certificate() {
    let ca = Ca::new();
    let known = showing(&ca, &ca.issue("client", &Wanted::client("Smith, Jane", DAY)));
    let nameless = showing(
        &ca,
        &ca.issue("nameless", &Wanted::client("", DAY).uri("urn:orders")),
    );
    let nobody = ClientTls::new(&ca.ca(), None).unwrap();

    let asks = server(&ca, ClientCertificates::Optional(ca.ca()));
    let (_, taken) = meet(&known, "localhost", &asks).await;
    assert_eq!(taken.unwrap().as_deref(), Some("CN=Smith\\, Jane"));
    let (_, taken) = meet(&nameless, "localhost", &asks).await;
    assert_eq!(taken.unwrap().as_deref(), Some("URI:urn:orders"));
    let (called, taken) = meet(&nobody, "localhost", &asks).await;
    assert_eq!((called.unwrap(), taken.unwrap()), ((), None));

    let requires = server(&ca, ClientCertificates::Required(ca.ca()));
    let (_, taken) = meet(&known, "localhost", &requires).await;
    assert!(taken.unwrap().is_some());
    let (called, taken) = meet(&nobody, "localhost", &requires).await;
    assert!(matches!(taken, Err(HandshakeError::NoCertificate)), "{taken:?}");
    let Err(HandshakeError::Refused(alert)) = called else {
        panic!("{called:?}")
    };
    assert_eq!(alert, rustls::AlertDescription::CertificateRequired);

    let ignores = server(&ca, ClientCertificates::Ignored);
    let (_, taken) = meet(&known, "localhost", &ignores).await;
    assert_eq!(taken.unwrap(), None, "it was not asked");
}

#[tokio::test]
async fn a_bad_certificate_is_worse_than_none() {
    let (ours, theirs) = (Ca::new(), Ca::new());
    let asks = server(&ours, ClientCertificates::Optional(ours.ca()));
    let now = std::time::SystemTime::now();
    for (ca, wanted) in [
        (&theirs, Wanted::client("mallory", DAY)),
        (&ours, Wanted::client("late", DAY).valid(now - 2 * DAY, now - DAY)),
        (&ours, Wanted::client("server", DAY).purposes(true, false)),
    ] {
        let files = ca.issue("bad", &wanted);
        let client = ClientTls::new(&ours.ca(), Some((&files.certificate, &files.key))).unwrap();
        let (called, taken) = meet(&client, "localhost", &asks).await;
        assert!(matches!(taken, Err(HandshakeError::Certificate(_))), "{taken:?}");
        assert!(matches!(called, Err(HandshakeError::Refused(_))), "{called:?}");
    }
}

#[tokio::test]
async fn only_the_newest_version_is_spoken() {
    let ca = Ca::new();
    let server = server(&ca, ClientCertificates::Ignored);
    for (version, spoken) in [(&rustls::version::TLS13, true), (&rustls::version::TLS12, false)] {
        let connector = older(&ca.ca(), version);
        let (here, there) = duplex();
        let host = rustls::pki_types::ServerName::try_from("localhost").unwrap();
        let (called, taken) = tokio::join!(connector.connect(host, here), server.accept(there));
        assert_eq!((called.is_ok(), taken.is_ok()), (spoken, spoken), "{version:?}");
        if let Err(error) = taken {
            assert!(matches!(error, HandshakeError::Tls(_)), "{error:?}");
        }
    }
}

fn older(ca: &Path, version: &'static rustls::SupportedProtocolVersion) -> TlsConnector {
    use rustls::pki_types::pem::PemObject as _;
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(rustls::pki_types::CertificateDer::from_pem_file(ca).unwrap())
        .unwrap();
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(ring)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config).into()
}

#[tokio::test]
async fn who_speaks_no_tls_is_told_from_who_speaks_it_badly() {
    let ca = Ca::new();
    let server = server(&ca, ClientCertificates::Ignored);
    let (mut here, there) = duplex();
    let (_, taken) = tokio::join!(
        here.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"),
        server.accept(there)
    );
    assert!(matches!(taken, Err(HandshakeError::NotTls)), "{taken:?}");
    let (here, there) = duplex();
    drop(here);
    let taken = server.accept(there).await;
    assert!(matches!(taken, Err(HandshakeError::Io(_))), "{taken:?}");
}
