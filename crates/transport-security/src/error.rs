//! What goes wrong with files and with handshakes, in the words of those who must act on it.

use std::fmt;
use std::io;
use std::path::PathBuf;

#[cfg(feature = "tls")]
use rustls::{CertificateError, PeerIncompatible};

use crate::names::{NameError, PeerName};

/// The longest text of a stranger that is repeated in a message.
#[cfg(feature = "tls")]
const MAX_SHOWN: usize = 200;

/// Why certificates and keys cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file is not to be had.
    #[error("{path}: {source}", path = path.display())]
    Unreadable {
        /// Which one.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A file is there, and is not what it should be.
    #[error("{path}: {fact}", path = path.display())]
    Malformed {
        /// Which one.
        path: PathBuf,
        /// What is wrong.
        fact: String,
    },
    /// Others than its owner's group can read or change a private key, or another secret.
    #[error(
        "{path}: others can read or change this {what} (mode {mode:03o}); `chmod 600` it, and replace it if it was open \
         to anybody",
        path = path.display()
    )]
    KeyExposed {
        /// Which file.
        path: PathBuf,
        /// What is in it.
        what: &'static str,
        /// Its permissions.
        mode: u32,
    },
    /// The certificate says that it is of another node than this one.
    #[error("{path}: {refused}", path = path.display())]
    NotOurs {
        /// Which file.
        path: PathBuf,
        /// What was expected, and what is in it.
        refused: Box<PeerRefused>,
    },
    /// The program is built without TLS.
    #[error("this program was built without TLS (the feature `tls` of its dependency)")]
    NotBuilt,
    /// The library does not take what was read.
    #[cfg(feature = "tls")]
    #[error("{path}: {source}", path = path.display())]
    Rejected {
        /// The certificate.
        path: PathBuf,
        /// Why not.
        source: rustls::Error,
    },
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The other end is not the peer that it has to be.
    #[error(transparent)]
    Peer(#[from] Box<PeerRefused>),
    /// The certificate of the other end is not good.
    #[cfg(feature = "tls")]
    #[error("{}", certificate_fault(.0))]
    Certificate(CertificateError),
    /// It has shown none, and has to.
    #[error("it has shown no certificate")]
    NoCertificate,
    /// It has said no to this side's certificate, or to all that is spoken here.
    #[cfg(feature = "tls")]
    #[error("the other end refused: {0:?}")]
    Refused(rustls::AlertDescription),
    /// It does not speak TLS at all.
    #[error("it does not speak TLS")]
    NotTls,
    /// It offers only versions of TLS that are older than the oldest one here.
    #[error("it offers no version of TLS that is accepted here")]
    TooOld,
    #[cfg(feature = "tls")]
    /// It speaks TLS, but agrees on nothing else that is spoken here, or is broken.
    #[error("no common ground: {0}")]
    Tls(rustls::Error),
    /// It took too long.
    #[error("the handshake was not done in time")]
    TimedOut,
    /// Too many have begun a handshake since.
    #[error("the handshake gave way to later ones: too many are begun and not finished")]
    Crowded,
    /// The name that was called can be in no certificate.
    #[error("{0:?} is neither a host's name nor an address")]
    NoHost(String),
    /// The connection broke.
    #[error(transparent)]
    Io(io::Error),
}

/// A peer is not who it has to be. It says what was expected, what was shown, and what is wrong with that.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerRefused {
    /// Of which cluster it has to be.
    pub cluster: String,
    /// Which node it has to be; `None`: any of the cluster.
    pub node: Option<u64>,
    /// What its certificate says of itself, made harmless: it is a stranger's text.
    pub shown: String,
    /// What is wrong with it.
    pub fault: PeerFault,
}

/// What is wrong with what a peer shows.
#[derive(Debug, Clone, PartialEq)]
pub enum PeerFault {
    /// There is no certificate.
    NoCertificate,
    #[cfg(feature = "tls")]
    /// Its certificate does not stand up to the authority: signed by another one, expired, for another purpose, …
    Certificate(CertificateError),
    /// The certificate cannot be read.
    Unreadable,
    /// No alternative name begins like a node's.
    NoName,
    /// More than one does: it could be taken for either.
    SeveralNames,
    /// One begins like a node's, and is none.
    MalformedName(NameError),
    /// It is a node of another cluster.
    OtherCluster(PeerName),
    /// It is another node.
    OtherNode(PeerName),
}

impl fmt::Display for PeerRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cluster, shown) = (&self.cluster, &self.shown);
        match self.node {
            Some(node) => write!(f, "node {node} of cluster {cluster:?} was expected, ")?,
            None => write!(f, "a node of cluster {cluster:?} was expected, ")?,
        }
        match &self.fault {
            PeerFault::NoCertificate => return f.write_str("and it has shown no certificate"),
            PeerFault::Unreadable => {
                return f.write_str("and it has shown a certificate that cannot be read");
            }
            _ => write!(f, "and it has shown {shown}: ")?,
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

impl std::error::Error for PeerRefused {}

/// The library's own words name Rust's variants.
#[cfg(feature = "tls")]
fn certificate_fault(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet; are the clocks right?".to_owned()
        }
        // The latter where two authorities have the same name.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate is not signed by the authority that is trusted here".to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "its certificate is meant for another purpose (extended key usage)".to_owned()
        }
        other => format!("its certificate was refused: {other}"),
    }
}

/// What a stranger says of itself, for a message or the log: on one line, in quotes, and of limited length.
#[cfg(feature = "tls")]
pub(crate) fn harmless(text: &str) -> String {
    let mut beginning: String = text.chars().take(MAX_SHOWN).collect();
    if beginning.len() < text.len() {
        beginning.push('…');
    }
    format!("{beginning:?}")
}

impl HandshakeError {
    /// Whether somebody was not let in: what whoever runs a node wants to read of. The rest happens to every port that is open
    /// to many.
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
    /// The error of a handshake that tokio-rustls carried out: what the library found is inside.
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
                match other.0.downcast_ref::<PeerRefused>() {
                    Some(refused) => Self::Peer(Box::new(refused.clone())),
                    None => Self::Certificate(CertificateError::Other(other)),
                }
            }
            rustls::Error::InvalidCertificate(error) => Self::Certificate(error),
            rustls::Error::NoCertificatesPresented => Self::NoCertificate,
            rustls::Error::AlertReceived(alert) => Self::Refused(alert),
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
                    _ => unreachable!("it was looked at"),
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
