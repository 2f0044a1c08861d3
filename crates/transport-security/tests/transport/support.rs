//! Authorities, files and connections for tests.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use transport_security::issue::{Authority, CertificateRequest, Issued};
use transport_security::{HandshakeError, HandshakeLimits, PeerName, PeerTls, Stream, TlsFiles};

pub const DAY: Duration = Duration::from_secs(24 * 3600);

/// Buffer size of the in-memory connections in bytes.
const BUFFER: usize = 64 * 1024;

/// Authority with a directory for the certificates that it signs.
pub struct Ca {
    pub authority: Authority,
    pub dir: TempDir,
}

impl Ca {
    pub fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let (authority, issued) = Authority::new("test authority", DAY).unwrap();
        fs::write(dir.path().join("ca.pem"), issued.certificate).unwrap();
        Self { authority, dir }
    }

    pub fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// Issues a certificate and writes it to files named `called`.
    pub fn issue(&self, called: &str, wanted: &CertificateRequest) -> TlsFiles {
        let files = self.files(called);
        put(&files, &self.authority.issue(wanted).unwrap());
        files
    }

    pub fn files(&self, called: &str) -> TlsFiles {
        TlsFiles {
            certificate: self.dir.path().join(format!("{called}.pem")),
            key: self.dir.path().join(format!("{called}.key")),
            ca: self.ca(),
        }
    }
}

/// Writes both files and renames each into place, as tools for renewal do.
pub fn put(files: &TlsFiles, issued: &Issued) {
    replace(&files.certificate, &issued.certificate);
    replace(&files.key, &issued.key);
}

pub fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(&new, path).unwrap();
}

pub fn node(cluster: &str, node: u64) -> CertificateRequest {
    let name = PeerName {
        cluster: cluster.to_owned(),
        node,
    };
    CertificateRequest::node(&name, &["localhost".to_owned(), "127.0.0.1".to_owned()], DAY)
}

/// `PeerTls` of the node `id` in the cluster `c`.
pub fn peer(files: &TlsFiles, id: u64) -> PeerTls {
    PeerTls::new(files, "c", id, HandshakeLimits::default()).unwrap()
}

pub type End = Stream<DuplexStream>;

/// Connects node 1 to `called`, which it expects to be node 2, and returns the results of both sides. The
/// caller's result includes its first read: with TLS 1.3 its handshake completes before the other side has
/// verified its certificate.
pub async fn meet(
    caller: &PeerTls,
    called: &PeerTls,
) -> (
    Result<End, HandshakeError>,
    Result<(End, PeerName), HandshakeError>,
) {
    let (here, there) = tokio::io::duplex(BUFFER);
    let call = async {
        let mut stream = caller.connect(2, here).await?;
        let mut greeting = [0; 1];
        stream.read_exact(&mut greeting).await?;
        Ok(stream)
    };
    let take = async {
        let (mut stream, name) = called.accept(there).await?;
        stream.write_all(b"!").await.map_err(HandshakeError::from)?;
        stream.flush().await.map_err(HandshakeError::from)?;
        Ok((stream, name))
    };
    tokio::join!(call, take)
}

/// Checks that bytes written at `a` arrive at `b`.
pub async fn talk(a: &mut End, b: &mut End) -> io::Result<()> {
    a.write_all(b"ping").await?;
    a.flush().await?;
    let mut heard = [0; 4];
    b.read_exact(&mut heard).await?;
    assert_eq!(&heard, b"ping");
    Ok(())
}

pub fn duplex() -> (DuplexStream, DuplexStream) {
    tokio::io::duplex(BUFFER)
}
