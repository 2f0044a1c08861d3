//! Errors of certificate files and of handshakes, with messages for operators.

use std::fmt;
use std::io;
use std::path::PathBuf;

#[cfg(feature = "tls")]
use rustls::{CertificateError, PeerIncompatible};

use crate::names::{NameError, PeerName};

/// Maximum length in characters of text from an unauthenticated peer in a message.
#[cfg(feature = "tls")]
const MAX_QUOTED_CHARS: usize = 200;

/// Error while loading certificates or keys.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The file cannot be read.
    #[error("{path}: {source}", path = path.display())]
    Unreadable {
        /// File.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file's content is invalid.
    #[error("{path}: {fact}", path = path.display())]
    Malformed {
        /// File.
        path: PathBuf,
        /// Description of the problem.
        fact: String,
    },
    /// The permissions of a private key, or of another secret, allow access beyond its owner and reading by
    /// its group.
    #[error(
        "{path}: others can read or change this {what} (mode {mode:03o}); `chmod 600` it, and replace it if it was open \
         to anybody",
        path = path.display()
    )]
    KeyExposed {
        /// File.
        path: PathBuf,
        /// Kind of secret.
        what: &'static str,
        /// Permission bits of the file.
        mode: u32,
    },
    /// The node's own certificate names another node or cluster.
    #[error("{path}: {refused}", path = path.display())]
    WrongIdentity {
        /// Certificate file.
        path: PathBuf,
        /// Expected identity and the one in the certificate.
        refused: Box<PeerMismatch>,
    },
    /// The program is built without TLS.
    #[error("this program was built without TLS (the feature `tls` of its dependency)")]
    NotBuilt,
    /// The TLS library rejected the certificate or the key.
    #[cfg(feature = "tls")]
    #[error("{path}: {}", own_fault(source), path = path.display())]
    Rejected {
        /// Certificate file.
        path: PathBuf,
        /// Error of the library.
        source: rustls::Error,
    },
}

/// Error that ended a handshake.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The other end is not the expected peer.
    #[error(transparent)]
    Peer(#[from] Box<PeerMismatch>),
    /// The certificate of the other end failed verification.
    #[cfg(feature = "tls")]
    #[error("{}", certificate_fault(.0))]
    Certificate(CertificateError),
    /// The other end presented no certificate, and one is required.
    #[error("it presented no certificate")]
    NoCertificate,
    /// The other end rejected this side's certificate, or supports no common version or cipher suite.
    #[cfg(feature = "tls")]
    #[error("the other end rejected the handshake: {0:?}")]
    RejectedByPeer(rustls::AlertDescription),
    /// The other end does not speak TLS.
    #[error("it does not speak TLS")]
    NotTls,
    /// The other end supports only TLS versions older than the oldest accepted one.
    #[error("it offers no version of TLS that is accepted here")]
    TooOld,
    #[cfg(feature = "tls")]
    /// Any other TLS error: no common parameters, or a protocol violation.
    #[error("the TLS handshake failed: {0}")]
    Tls(rustls::Error),
    /// The handshake exceeded its timeout.
    #[error("the handshake timed out")]
    TimedOut,
    /// Later handshakes replaced this one, because too many were in progress.
    #[error("the handshake was cancelled in favour of later ones: too many are in progress")]
    Crowded,
    /// The host name that the client called is not a valid name for a certificate.
    #[error("{0:?} is neither a host name nor an IP address")]
    NoHost(String),
    /// I/O error of the connection.
    #[error(transparent)]
    Io(io::Error),
}

/// Mismatch between the expected peer and the certificate that the other end presented.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerMismatch {
    /// Expected cluster.
    pub cluster: String,
    /// Expected node; `None`: any node of the cluster.
    pub node: Option<u64>,
    /// Names in the presented certificate. They come from an unauthenticated peer, so they are quoted and
    /// truncated.
    pub presented: String,
    /// Reason for the rejection.
    pub fault: PeerFault,
}

/// Reason why a peer's certificate was rejected.
#[derive(Debug, Clone, PartialEq)]
pub enum PeerFault {
    /// The peer presented no certificate.
    NoCertificate,
    #[cfg(feature = "tls")]
    /// The certificate failed verification: signed by another authority, expired, issued for another purpose,
    /// …
    Certificate(CertificateError),
    /// The certificate cannot be parsed.
    Unreadable,
    /// No subject alternative name starts like a node's name.
    NoName,
    /// Several subject alternative names start like a node's name, so the identity is ambiguous.
    SeveralNames,
    /// A subject alternative name starts like a node's name, but is malformed.
    MalformedName(NameError),
    /// The certificate names a node of another cluster.
    OtherCluster(PeerName),
    /// The certificate names another node.
    OtherNode(PeerName),
}

impl fmt::Display for PeerMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cluster, presented) = (&self.cluster, &self.presented);
        match self.node {
            Some(node) => write!(f, "node {node} of cluster {cluster:?} was expected, ")?,
            None => write!(f, "a node of cluster {cluster:?} was expected, ")?,
        }
        match &self.fault {
            PeerFault::NoCertificate => return f.write_str("but it presented no certificate"),
            PeerFault::Unreadable => {
                return f.write_str("but it presented a certificate that cannot be parsed");
            }
            _ => write!(f, "but it presented {presented}: ")?,
        }
        match &self.fault {
            PeerFault::NoCertificate | PeerFault::Unreadable => Ok(()),
            #[cfg(feature = "tls")]
            PeerFault::Certificate(error) => f.write_str(&certificate_fault(error)),
            PeerFault::NoName => f.write_str("its certificate names no node (lockgate://CLUSTER/node/ID)"),
            PeerFault::SeveralNames => f.write_str("its certificate names more than one node"),
            PeerFault::MalformedName(error) => write!(f, "{error}"),
            PeerFault::OtherCluster(name) => write!(f, "it is of cluster {:?}", name.cluster),
            PeerFault::OtherNode(name) => write!(f, "it is node {}", name.node),
        }
    }
}

impl std::error::Error for PeerMismatch {}

/// Message for a certificate error; the library's own message names Rust variants.
#[cfg(feature = "tls")]
fn certificate_fault(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet; are the clocks right?".to_owned()
        }
        // `BadSignature` occurs if two authorities have the same name.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate is not signed by the authority that is trusted here".to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "its certificate is meant for another purpose (extended key usage)".to_owned()
        }
        other => format!("its certificate was rejected: {other}"),
    }
}

/// Describes why this program's own certificate is unusable. To rustls, every certificate is a peer's.
#[cfg(feature = "tls")]
fn own_fault(error: &rustls::Error) -> String {
    match error {
        // rustls has no variant for this one.
        rustls::Error::InvalidCertificate(CertificateError::Other(other))
            if format!("{other:?}").contains("UnsupportedCertVersion") =>
        {
            "this certificate is not of X.509 version 3".to_owned()
        }
        rustls::Error::InvalidCertificate(fault) => format!("this certificate cannot be used: {fault}"),
        other => other.to_string(),
    }
}

/// Quotes text from an unauthenticated peer for a message or the log: one line, in quotes, of at most
/// [`MAX_QUOTED_CHARS`] characters.
#[cfg(feature = "tls")]
pub(crate) fn quoted(text: &str) -> String {
    let mut beginning: String = text.chars().take(MAX_QUOTED_CHARS).collect();
    if beginning.len() < text.len() {
        beginning.push('…');
    }
    format!("{beginning:?}")
}

impl HandshakeError {
    /// Returns whether this side rejected the identity or the TLS version of the other end, which operators
    /// want to see in the log. The other errors occur at any port that is open to many.
    pub fn is_refusal(&self) -> bool {
        match self {
            #[cfg(feature = "tls")]
            Self::Certificate(_) => true,
            Self::Peer(_) | Self::NoCertificate | Self::TooOld => true,
            _ => false,
        }
    }
}

impl From<io::Error> for HandshakeError {
    /// Converts an error of tokio-rustls, which wraps the error of rustls.
    fn from(error: io::Error) -> Self {
        #[cfg(feature = "tls")]
        if let Some(found) = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>())
        {
            return found.clone().into();
        }
        Self::Io(error)
    }
}

#[cfg(feature = "tls")]
impl From<rustls::Error> for HandshakeError {
    fn from(error: rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(CertificateError::Other(other)) => {
                match other.0.downcast_ref::<PeerMismatch>() {
                    Some(refused) => Self::Peer(Box::new(refused.clone())),
                    None => Self::Certificate(CertificateError::Other(other)),
                }
            }
            rustls::Error::InvalidCertificate(error) => Self::Certificate(error),
            rustls::Error::NoCertificatesPresented => Self::NoCertificate,
            rustls::Error::AlertReceived(alert) => Self::RejectedByPeer(alert),
            rustls::Error::PeerIncompatible(
                PeerIncompatible::Tls12NotOffered
                | PeerIncompatible::Tls12NotOfferedOrEnabled
                | PeerIncompatible::SupportedVersionsExtensionRequired,
            ) => Self::TooOld,
            rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType) => Self::NotTls,
            other => Self::Tls(other),
        }
    }
}

impl From<HandshakeError> for io::Error {
    fn from(error: HandshakeError) -> Self {
        let kind = match &error {
            HandshakeError::Io(_) => {
                return match error {
                    HandshakeError::Io(error) => error,
                    _ => unreachable!("the error is an I/O error"),
                };
            }
            HandshakeError::TimedOut => io::ErrorKind::TimedOut,
            HandshakeError::Crowded => io::ErrorKind::ConnectionAborted,
            HandshakeError::NoHost(_) => io::ErrorKind::InvalidInput,
            _ => io::ErrorKind::PermissionDenied,
        };
        io::Error::new(kind, error)
    }
}
