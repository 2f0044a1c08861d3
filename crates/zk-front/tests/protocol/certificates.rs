//! Certificates of a front end and its clients.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use transport_security::issue::{Authority, CertificateRequest, Issued};
use transport_security::{
    ClientCertificates, ClientTls, HandshakeLimits, OldestVersion, PeerName, ServerTls,
};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Authority with the files that it has issued.
pub struct Certificates {
    dir: TempDir,
    authority: Authority,
}

impl Certificates {
    pub fn new() -> Self {
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

    /// Returns the server configuration of node 1.
    pub fn server(&self) -> ServerTls {
        let name = PeerName {
            cluster: "test".to_owned(),
            node: 1,
        };
        let wanted = CertificateRequest::node(&name, &["127.0.0.1".to_owned()], DAY);
        let [certificate, key] = self.put("server", self.authority.issue(&wanted).unwrap());
        let clients = ClientCertificates::Optional(self.ca());
        ServerTls::new(
            "clients",
            &certificate,
            &key,
            clients,
            &[],
            OldestVersion::default(),
            HandshakeLimits::default(),
        )
        .unwrap()
    }

    /// Returns the configuration of a client with a certificate of this name, or without one.
    pub fn client(&self, name: Option<&str>) -> ClientTls {
        let files = name.map(|name| {
            let issued = self
                .authority
                .issue(&CertificateRequest::client(name, DAY))
                .unwrap();
            self.put(name, issued)
        });
        let own = files
            .as_ref()
            .map(|[certificate, key]| (certificate.as_path(), key.as_path()));
        ClientTls::new(&self.ca(), own).unwrap()
    }
}
