//! Errors of certificate and key files, which name the file.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use transport_security::issue::CertificateRequest;
use transport_security::{HandshakeLimits, PeerTls, TlsError, TlsFiles};

use crate::support::{Ca, DAY, node};

fn open(files: &TlsFiles) -> Result<PeerTls, TlsError> {
    PeerTls::new(files, "c", 1, HandshakeLimits::default())
}

#[test]
fn exposed_private_key_is_rejected() {
    let ca = Ca::new();
    let files = ca.issue("1", &node("c", 1));
    for (mode, used) in [
        (0o600, true),
        (0o400, true),
        (0o640, true),
        (0o660, false),
        (0o604, false),
        (0o644, false),
        (0o602, false),
        (0o777, false),
    ] {
        fs::set_permissions(&files.key, fs::Permissions::from_mode(mode)).unwrap();
        match open(&files) {
            Ok(_) => assert!(used, "{mode:o}"),
            Err(TlsError::KeyExposed { path, mode: seen, .. }) => {
                assert_eq!((path, seen, used), (files.key.clone(), mode, false));
            }
            Err(other) => panic!("{mode:o}: {other}"),
        }
    }
}

#[test]
fn file_errors_name_the_file() {
    let ca = Ca::new();
    let good = ca.issue("1", &node("c", 1));
    let other = ca.issue("other", &node("c", 1));
    let dir = ca.dir.path();
    let file = |name: &str, text: &str| {
        let path = dir.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let broken = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
    let cases = [
        (
            TlsFiles {
                certificate: dir.join("none.pem"),
                ..good.clone()
            },
            "none.pem: No such file or directory",
        ),
        (
            TlsFiles {
                certificate: file("empty.pem", ""),
                ..good.clone()
            },
            "empty.pem: there is no certificate in it",
        ),
        (
            TlsFiles {
                certificate: good.key.clone(),
                ..good.clone()
            },
            "1.key: there is no certificate in it",
        ),
        (
            TlsFiles {
                certificate: file("broken.pem", broken),
                ..good.clone()
            },
            "broken.pem: a certificate in it cannot be read",
        ),
        (
            TlsFiles {
                certificate: file("half.pem", "-----BEGIN CERTIFICATE-----\nMI"),
                ..good.clone()
            },
            "half.pem: not PEM",
        ),
        (
            TlsFiles {
                key: file("certificate.key", &fs::read_to_string(&good.certificate).unwrap()),
                ..good.clone()
            },
            "certificate.key: there is no private key in it",
        ),
        (
            TlsFiles {
                key: other.key.clone(),
                ..good.clone()
            },
            "1.pem: keys may not be consistent",
        ),
        (
            TlsFiles {
                ca: file("large.pem", &"x".repeat(1024 * 1024 + 1)),
                ..good.clone()
            },
            "large.pem: it is larger than 1048576 bytes",
        ),
        (
            TlsFiles {
                ca: file("none-in-it.pem", "nothing"),
                ..good.clone()
            },
            "none-in-it.pem: there is no certificate in it",
        ),
    ];
    for (files, says) in cases {
        let text = open(&files).expect_err(says).to_string();
        assert!(text.contains(says), "{text}\nshould say: {says}");
    }
}

#[test]
fn expiry_of_the_own_certificate_is_reported() {
    let ca = Ca::new();
    let now = std::time::SystemTime::now();
    let wanted = node("c", 1).valid(now - DAY, now + 7 * DAY);
    let tls = open(&ca.issue("1", &wanted)).unwrap();
    let left = tls.reloadable().not_after().unwrap().duration_since(now).unwrap();
    // Certificates store times in whole seconds.
    assert!(
        left > 7 * DAY - std::time::Duration::from_secs(2) && left <= 7 * DAY,
        "{left:?}"
    );
    let files = ca.issue("client", &CertificateRequest::client("a", DAY));
    let client = transport_security::ClientTls::new(&files.ca, None).unwrap();
    assert_eq!(client.reloadable().not_after(), None);
}
