//! Rejection of bad peers in both directions, with messages that state the expected and the presented
//! identity.

use std::time::SystemTime;

use transport_security::issue::CertificateRequest;
use transport_security::{
    HandshakeError, HandshakeLimits, PeerFault, PeerMismatch, PeerTls, TlsError, TlsFiles,
};

use crate::support::{Ca, DAY, duplex, meet, node, peer, talk};

#[tokio::test]
async fn nodes_of_a_cluster_authenticate_each_other() {
    let ca = Ca::new();
    let (one, two) = (
        peer(&ca.issue("1", &node("c", 1)), 1),
        peer(&ca.issue("2", &node("c", 2)), 2),
    );
    let (called, taken) = meet(&one, &two).await;
    let (mut here, (mut there, name)) = (called.unwrap(), taken.unwrap());
    assert_eq!(name.to_string(), "lockgate://c/node/1");
    talk(&mut here, &mut there).await.unwrap();
    talk(&mut there, &mut here).await.unwrap();

    assert_eq!(two.check(&name, 1), Ok(()));
    let refused = two.check(&name, 3).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "node 3 of cluster \"c\" was expected, but it presented lockgate://c/node/1: it is node 1"
    );
}

/// Bad certificate and the messages it causes. A node would not start with it, so the test presents it with a
/// program of its own.
struct Bad {
    what: &'static str,
    wanted: CertificateRequest,
    /// Message at the node that is called with it; empty if the node accepts it.
    as_caller: &'static str,
    /// Message at the node that calls its owner; empty if the node accepts it.
    as_called: &'static str,
}

fn bad() -> Vec<Bad> {
    let now = SystemTime::now();
    let same = |what, wanted, says: &'static str| Bad {
        what,
        wanted,
        as_caller: says,
        as_called: says,
    };
    vec![
        same(
            "a client's certificate",
            CertificateRequest::client("orders", DAY).purposes(true, true),
            "it presented \"CN=orders\": its certificate names no node (lockgate://CLUSTER/node/ID)",
        ),
        same(
            "a common name that looks like a node's",
            CertificateRequest::client("lockgate://c/node/2", DAY).purposes(true, true),
            "it presented \"CN=lockgate://c/node/2\": its certificate names no node (lockgate://CLUSTER/node/ID)",
        ),
        same(
            "a node of another cluster",
            node("other", 2),
            "DNS:localhost, IP:127.0.0.1\": it is of cluster \"other\"",
        ),
        same(
            "two names of nodes",
            node("c", 2).uri("lockgate://c/node/1"),
            "its certificate names more than one node",
        ),
        same(
            "two names, one of them in another case",
            node("c", 2).uri("LockGate://c/node/1"),
            "its certificate names more than one node",
        ),
        same(
            "a name that is no name",
            CertificateRequest::client("", DAY)
                .purposes(true, true)
                .uri("lockgate://c/node/02"),
            "it presented \"URI:lockgate://c/node/02\": it is not of the form lockgate://CLUSTER/node/ID",
        ),
        same(
            "an expired certificate",
            node("c", 2).valid(now - 2 * DAY, now - DAY),
            "its certificate has expired",
        ),
        same(
            "one that is not valid yet",
            node("c", 2).valid(now + DAY, now + 2 * DAY),
            "its certificate is not valid yet; are the clocks right?",
        ),
        Bad {
            what: "one that is only for clients",
            wanted: node("c", 2).purposes(false, true),
            as_caller: "",
            as_called: "its certificate is meant for another purpose (extended key usage)",
        },
        Bad {
            what: "one that is only for servers",
            wanted: node("c", 2).purposes(true, false),
            as_caller: "its certificate is meant for another purpose (extended key usage)",
            as_called: "",
        },
        Bad {
            what: "another node's certificate",
            wanted: node("c", 3),
            as_caller: "",
            as_called: "node 2 of cluster \"c\" was expected, but it presented \"URI:lockgate://c/node/3, DNS:localhost, \
                        IP:127.0.0.1\": it is node 3",
        },
    ]
}

#[tokio::test]
async fn bad_peer_certificate_is_rejected_in_both_directions() {
    let ca = Ca::new();
    let good = ca.issue("good", &node("c", 1));
    let one = peer(&good, 1);
    let mut refusals = 0;
    for Bad {
        what,
        wanted,
        as_caller,
        as_called,
    } in bad()
    {
        let files = ca.issue("bad", &wanted);
        let answering = stranger::answer(&files);
        let (here, there) = duplex();
        let (called, _) = tokio::join!(one.connect(2, here), answering.accept(there));
        refusals += expect(what, called.map(drop), as_called);

        let calling = stranger::call(&files);
        let (here, there) = duplex();
        let (_, taken) = tokio::join!(calling.connect(stranger::host(), here), one.accept(there));
        refusals += expect(what, taken.map(drop), as_caller);
    }
    assert_eq!(refusals, 19);
}

/// Checks the result of a handshake and returns the number of rejections; empty `says`: the handshake
/// succeeds.
#[track_caller]
fn expect(what: &str, done: Result<(), HandshakeError>, says: &str) -> usize {
    match done {
        Ok(()) => assert_eq!(says, "", "{what} was accepted"),
        Err(HandshakeError::Peer(refused)) => {
            let text = refused.to_string();
            assert!(!says.is_empty() && text.ends_with(says), "{what}: {text}");
            assert!(text.contains("of cluster \"c\" was expected"), "{what}: {text}");
            return 1;
        }
        Err(other) => panic!("{what}: {other:?}"),
    }
    0
}

#[tokio::test]
async fn nodes_of_different_authorities_reject_each_other() {
    let (ours, theirs) = (Ca::new(), Ca::new());
    let (one, two) = (
        peer(&ours.issue("1", &node("c", 1)), 1),
        peer(&theirs.issue("2", &node("c", 2)), 2),
    );
    let (called, _) = meet(&one, &two).await;
    let Err(HandshakeError::Peer(refused)) = called else {
        panic!("{called:?}")
    };
    assert_eq!(
        refused.to_string(),
        "node 2 of cluster \"c\" was expected, but it presented \"URI:lockgate://c/node/2, DNS:localhost, IP:127.0.0.1\": \
         its certificate is not signed by the authority that is trusted here"
    );
    // A caller that does not verify the called node is rejected as well.
    let files = theirs.files("2");
    let (here, there) = duplex();
    let (_, taken) = tokio::join!(
        stranger::call(&files).connect(stranger::host(), here),
        one.accept(there)
    );
    let Err(HandshakeError::Peer(refused)) = taken else {
        panic!("the handshake succeeded")
    };
    assert!(matches!(refused.fault, PeerFault::Certificate(_)), "{refused}");
}

/// The versions that listeners for clients accept do not matter here.
#[tokio::test]
async fn nodes_use_only_tls_1_3_with_each_other() {
    let ca = Ca::new();
    let (one, two) = (ca.issue("1", &node("c", 1)), ca.issue("2", &node("c", 2)));
    for (version, spoken) in [(&rustls::version::TLS13, true), (&rustls::version::TLS12, false)] {
        let calling = stranger::call_with(&two, &[version]);
        let (here, there) = duplex();
        let one = peer(&one, 1);
        let (_, taken) = tokio::join!(calling.connect(stranger::host(), here), one.accept(there));
        match taken {
            Ok(_) => assert!(spoken, "{version:?}"),
            Err(refused) => assert!(
                !spoken && matches!(refused, HandshakeError::TooOld),
                "{version:?}: {refused}"
            ),
        }
        let answering = stranger::answer_with(&two, &[version]);
        let (here, there) = duplex();
        let (called, _) = tokio::join!(one.connect(2, here), answering.accept(there));
        assert_eq!(called.is_ok(), spoken, "{version:?}");
    }
}

#[tokio::test]
async fn caller_without_a_certificate_is_rejected() {
    let ca = Ca::new();
    let one = peer(&ca.issue("1", &node("c", 1)), 1);
    let client = transport_security::ClientTls::new(&ca.ca(), None).unwrap();
    let (here, there) = duplex();
    let (_, taken) = tokio::join!(client.connect("localhost", here), one.accept(there));
    let Err(HandshakeError::Peer(refused)) = taken else {
        panic!("the handshake succeeded")
    };
    assert_eq!(
        *refused,
        PeerMismatch {
            cluster: "c".to_owned(),
            node: None,
            presented: String::new(),
            fault: PeerFault::NoCertificate,
        }
    );
    assert_eq!(
        refused.to_string(),
        "a node of cluster \"c\" was expected, but it presented no certificate"
    );
}

#[test]
fn certificate_of_another_node_fails_to_load() {
    let ca = Ca::new();
    let files = ca.issue("2", &node("c", 2));
    for (cluster, id, says) in [
        ("c", 1, "node 1 of cluster \"c\" was expected"),
        ("d", 2, "node 2 of cluster \"d\" was expected"),
    ] {
        let refused = PeerTls::new(&files, cluster, id, HandshakeLimits::default()).unwrap_err();
        assert!(matches!(refused, TlsError::WrongIdentity { .. }), "{refused}");
        assert!(refused.to_string().contains(says), "{refused}");
    }
}

/// TLS program that presents any certificate and accepts every certificate.
mod stranger {
    use std::fs;
    use std::sync::Arc;

    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
    use rustls::{
        ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme, SupportedProtocolVersion,
    };
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::TlsFiles;

    fn own(files: &TlsFiles) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let certificate = CertificateDer::from_pem_slice(&fs::read(&files.certificate).unwrap()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(&fs::read(&files.key).unwrap()).unwrap();
        (vec![certificate], key)
    }

    fn ring() -> Arc<rustls::crypto::CryptoProvider> {
        Arc::new(rustls::crypto::ring::default_provider())
    }

    pub fn answer(files: &TlsFiles) -> TlsAcceptor {
        answer_with(files, rustls::DEFAULT_VERSIONS)
    }

    pub fn answer_with(files: &TlsFiles, versions: &[&'static SupportedProtocolVersion]) -> TlsAcceptor {
        let (chain, key) = own(files);
        let config = ServerConfig::builder_with_provider(ring())
            .with_protocol_versions(versions)
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        Arc::new(config).into()
    }

    pub fn call(files: &TlsFiles) -> TlsConnector {
        call_with(files, rustls::DEFAULT_VERSIONS)
    }

    pub fn call_with(files: &TlsFiles, versions: &[&'static SupportedProtocolVersion]) -> TlsConnector {
        let (chain, key) = own(files);
        let config = ClientConfig::builder_with_provider(ring())
            .with_protocol_versions(versions)
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Believer))
            .with_client_auth_cert(chain, key)
            .unwrap();
        Arc::new(config).into()
    }

    pub fn host() -> ServerName<'static> {
        ServerName::try_from("localhost").unwrap()
    }

    #[derive(Debug)]
    struct Believer;

    impl ServerCertVerifier for Believer {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            let ring = rustls::crypto::ring::default_provider();
            ring.signature_verification_algorithms.supported_schemes()
        }
    }
}
