//! What a listener asks of clients.

#[cfg(feature = "tls")]
use std::path::Path;
use std::path::PathBuf;

/// What is asked of clients. Whatever is asked: a certificate that is shown and is not good ends the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Nothing: none is asked for.
    Ignored,
    /// Who has one signed by an authority in this file is known by it.
    Optional(PathBuf),
    /// Who has none is refused.
    Required(PathBuf),
}

impl ClientCertificates {
    #[cfg(feature = "tls")]
    pub(crate) fn authority(&self) -> Option<&Path> {
        match self {
            Self::Ignored => None,
            Self::Optional(path) | Self::Required(path) => Some(path),
        }
    }
}

/// Oldest version of TLS that a listener accepts. It always accepts 1.3 as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OldestVersion {
    /// 1.3, and nothing else.
    #[default]
    Tls13,
    /// 1.2, for clients that know no more. Of its ciphers rustls has those with forward secrecy and authenticated encryption only, and no
    /// renegotiation. A client's certificate crosses the network in the clear.
    Tls12,
}
