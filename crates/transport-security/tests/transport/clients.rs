//! Connections between clients and nodes: host verification, client identity, and the negotiated version.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;
use transport_security::issue::CertificateRequest;
use transport_security::{
    ClientCertificates, ClientTls, HandshakeError, HandshakeLimits, OldestVersion, ServerTls, TlsFiles,
};

use crate::support::{Ca, DAY, duplex, node};

fn server(ca: &Ca, clients: ClientCertificates) -> ServerTls {
    server_from(ca, clients, OldestVersion::default())
}

fn server_from(ca: &Ca, clients: ClientCertificates, oldest: OldestVersion) -> ServerTls {
    let files = ca.issue("server", &node("c", 1));
    let bounds = HandshakeLimits::default();
    ServerTls::new(
        "HTTP",
        &files.certificate,
        &files.key,
        clients,
        &["http/1.1"],
        oldest,
        bounds,
    )
    .unwrap()
}

/// Connects the client to the server. Returns the client's result, and the identity that the server found.
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
async fn client_accepts_only_certificates_for_the_host_it_called() {
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
async fn client_rejects_a_certificate_of_another_authority() {
    let (ours, theirs) = (Ca::new(), Ca::new());
    let server = server(&theirs, ClientCertificates::Ignored);
    let client = ClientTls::new(&ours.ca(), None).unwrap();
    let (called, taken) = meet(&client, "localhost", &server).await;
    let refused = called.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "its certificate is not signed by the authority that is trusted here"
    );
    assert!(
        matches!(taken, Err(HandshakeError::RejectedByPeer(_))),
        "{taken:?}"
    );
}

fn showing(ca: &Ca, files: &transport_security::TlsFiles) -> ClientTls {
    ClientTls::new(&ca.ca(), Some((&files.certificate, &files.key))).unwrap()
}

#[tokio::test]
async fn server_identifies_a_client_by_its_certificate() {
    let ca = Ca::new();
    let known = showing(
        &ca,
        &ca.issue("client", &CertificateRequest::client("Smith, Jane", DAY)),
    );
    let nameless = showing(
        &ca,
        &ca.issue("nameless", &CertificateRequest::client("", DAY).uri("urn:orders")),
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
    let Err(HandshakeError::RejectedByPeer(alert)) = called else {
        panic!("{called:?}")
    };
    assert_eq!(alert, rustls::AlertDescription::CertificateRequired);

    let ignores = server(&ca, ClientCertificates::Ignored);
    let (_, taken) = meet(&known, "localhost", &ignores).await;
    assert_eq!(taken.unwrap(), None, "the server requested no certificate");
}

#[tokio::test]
async fn bad_client_certificate_fails_where_none_is_required() {
    let (ours, theirs) = (Ca::new(), Ca::new());
    let asks = server(&ours, ClientCertificates::Optional(ours.ca()));
    let now = std::time::SystemTime::now();
    for (ca, wanted) in [
        (&theirs, CertificateRequest::client("mallory", DAY)),
        (
            &ours,
            CertificateRequest::client("late", DAY).valid(now - 2 * DAY, now - DAY),
        ),
        (
            &ours,
            CertificateRequest::client("server", DAY).purposes(true, false),
        ),
    ] {
        let files = ca.issue("bad", &wanted);
        let client = ClientTls::new(&ours.ca(), Some((&files.certificate, &files.key))).unwrap();
        let (called, taken) = meet(&client, "localhost", &asks).await;
        assert!(matches!(taken, Err(HandshakeError::Certificate(_))), "{taken:?}");
        assert!(
            matches!(called, Err(HandshakeError::RejectedByPeer(_))),
            "{called:?}"
        );
    }
}

/// TLS versions that a client can offer.
const NEWEST: &rustls::SupportedProtocolVersion = &rustls::version::TLS13;
const OLDER: &rustls::SupportedProtocolVersion = &rustls::version::TLS12;

#[tokio::test]
async fn tls_1_2_is_accepted_only_where_it_is_the_oldest_version() {
    let ca = Ca::new();
    for (oldest, offered, spoken) in [
        (OldestVersion::Tls13, NEWEST, true),
        (OldestVersion::Tls13, OLDER, false),
        (OldestVersion::Tls12, NEWEST, true),
        (OldestVersion::Tls12, OLDER, true),
    ] {
        let server = server_from(&ca, ClientCertificates::Ignored, oldest);
        let (here, there) = duplex();
        let connector = TlsConnector::from(Arc::new(offering(&ca, offered, None)));
        let (called, taken) = tokio::join!(connector.connect(localhost(), here), server.accept(there));
        let case = format!("{oldest:?} {offered:?}");
        assert_eq!((called.is_ok(), taken.is_ok()), (spoken, spoken), "{case}");
        match (called, taken) {
            (Ok(stream), _) => {
                assert_eq!(
                    stream.get_ref().1.protocol_version(),
                    Some(offered.version),
                    "{case}"
                );
            }
            // The node logs this error; operators of an old client look for the reason there.
            (Err(_), refused) => {
                let refused = refused.unwrap_err();
                assert!(
                    matches!(refused, HandshakeError::TooOld) && refused.is_refusal(),
                    "{refused:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn newest_common_version_is_chosen() {
    let ca = Ca::new();
    let server = server_from(&ca, ClientCertificates::Ignored, OldestVersion::Tls12);
    let both = config(&ca, &[OLDER, NEWEST], None);
    let (here, there) = duplex();
    let connector = TlsConnector::from(Arc::new(both));
    let (called, _) = tokio::join!(connector.connect(localhost(), here), server.accept(there));
    assert_eq!(
        called.unwrap().get_ref().1.protocol_version(),
        Some(NEWEST.version)
    );
}

#[tokio::test]
async fn server_identifies_a_tls_1_2_client_by_its_certificate() {
    let (ca, other) = (Ca::new(), Ca::new());
    let known = ca.issue("client", &CertificateRequest::client("orders", DAY));
    let stranger = other.issue("client", &CertificateRequest::client("orders", DAY));
    let requires = server_from(&ca, ClientCertificates::Required(ca.ca()), OldestVersion::Tls12);
    for (shown, expected) in [
        (Some(&known), Some("CN=orders")),
        (Some(&stranger), None),
        (None, None),
    ] {
        let connector = TlsConnector::from(Arc::new(offering(&ca, OLDER, shown)));
        let (here, there) = duplex();
        let (_, taken) = tokio::join!(connector.connect(localhost(), here), requires.accept(there));
        match (taken, expected) {
            (Ok((_, client)), Some(expected)) => {
                assert_eq!(client.unwrap().identity(), Some(expected));
            }
            (Err(refused), None) => assert!(refused.is_refusal(), "{refused:?}"),
            (taken, _) => panic!("{taken:?}, and {expected:?} was expected"),
        }
    }
}

#[tokio::test]
async fn client_speaks_tls_1_2_only_if_it_accepts_it() {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let ca = Ca::new();
    let files = ca.issue("server", &node("c", 1));
    for (oldest, served, connects) in [
        (OldestVersion::Tls13, NEWEST, true),
        (OldestVersion::Tls13, OLDER, false),
        (OldestVersion::Tls12, NEWEST, true),
        (OldestVersion::Tls12, OLDER, true),
    ] {
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(ring)
            .with_protocol_versions(&[served])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_file(&files.certificate).unwrap()],
                PrivateKeyDer::from_pem_file(&files.key).unwrap(),
            )
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let client = ClientTls::accepting(oldest, &ca.ca(), None).unwrap();
        let (here, there) = duplex();
        let (connected, taken) = tokio::join!(client.connect("localhost", here), acceptor.accept(there));
        assert_eq!(connected.is_ok(), connects, "{oldest:?} and {:?}", served.version);
        if let Ok(taken) = taken {
            assert_eq!(taken.get_ref().1.protocol_version(), Some(served.version));
        }
    }
}

#[tokio::test]
async fn no_session_is_resumed_in_either_version() {
    let ca = Ca::new();
    let server = server_from(&ca, ClientCertificates::Ignored, OldestVersion::Tls12);
    for version in [OLDER, NEWEST] {
        // The connector stores tickets and sessions, and offers them with the next connection.
        let connector = TlsConnector::from(Arc::new(offering(&ca, version, None)));
        for _ in 0..2 {
            let (here, there) = duplex();
            let call = async {
                let mut stream = connector.connect(localhost(), here).await.unwrap();
                // Tickets of TLS 1.3 follow the handshake.
                stream.read_exact(&mut [0; 1]).await.unwrap();
                stream
            };
            let take = async {
                let (mut stream, _) = server.accept(there).await.unwrap();
                stream.write_all(b"!").await.unwrap();
                stream.flush().await.unwrap();
            };
            let (stream, ()) = tokio::join!(call, take);
            let kind = stream.get_ref().1.handshake_kind();
            assert_eq!(kind, Some(rustls::HandshakeKind::Full), "{version:?}");
        }
    }
}

fn localhost() -> rustls::pki_types::ServerName<'static> {
    rustls::pki_types::ServerName::try_from("localhost").unwrap()
}

/// Client that offers only this version, with or without a certificate.
fn offering(
    ca: &Ca,
    version: &'static rustls::SupportedProtocolVersion,
    shown: Option<&TlsFiles>,
) -> rustls::ClientConfig {
    config(ca, &[version], shown)
}

fn config(
    ca: &Ca,
    versions: &[&'static rustls::SupportedProtocolVersion],
    shown: Option<&TlsFiles>,
) -> rustls::ClientConfig {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(ca.ca()).unwrap())
        .unwrap();
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(ring)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    match shown {
        None => builder.with_no_client_auth(),
        Some(files) => {
            let chain = vec![CertificateDer::from_pem_file(&files.certificate).unwrap()];
            let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    }
}

#[tokio::test]
async fn plain_text_and_a_closed_connection_give_distinct_errors() {
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
