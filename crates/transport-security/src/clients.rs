//! Requirements of a listener for client certificates and TLS versions.

#[cfg(feature = "tls")]
use std::path::Path;
use std::path::PathBuf;

/// Requirement for client certificates. Under each of them, a presented certificate that fails verification
/// ends the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientCertificates {
    /// The listener requests no certificate.
    Ignored,
    /// Clients may present a certificate, which authenticates them if an authority in this file has signed
    /// it.
    Optional(PathBuf),
    /// Clients must present a certificate signed by an authority in this file; others are rejected.
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

/// Oldest TLS version that one side accepts. It always accepts 1.3 as well, and chooses it if the other side has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OldestVersion {
    /// TLS 1.3 only.
    #[default]
    Tls13,
    /// TLS 1.2, for clients and servers that do not support 1.3. Of its cipher suites rustls implements only those with
    /// forward secrecy and authenticated encryption, and it does not implement renegotiation. A client's
    /// certificate crosses the network unencrypted.
    Tls12,
}
