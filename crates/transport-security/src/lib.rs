//! TLS for Lockgate: mutual authentication of nodes, client certificates, and certificate reload. No other
//! crate uses rustls.
//!
//! # Types
//!
//! A node has three kinds of connections, and each kind has a type that performs the handshake on a socket:
//!
//! | type | other end | certificate that the other end presents |
//! |---|---|---|
//! | [`PeerTls`] | another node, in both directions | one with the name `lockgate://CLUSTER/node/ID` |
//! | [`ServerTls`] | a client, over HTTP or ZooKeeper's protocol | none, or one that becomes its identity |
//! | [`ClientTls`] | a node, from the client's side | one for the host that the client called |
//!
//! The result is a [`Stream`], which is read and written like a socket. Only TLS 1.3 is used, unless a
//! listener for clients also accepts 1.2 ([`OldestVersion`]).
//!
//! # Guarantees
//!
//! - **Fail closed.** The handshake rejects a peer without a certificate, and one whose certificate names no
//!   node, several nodes, a node of another cluster, or another ID than the one that was called, or is
//!   expired, issued for another purpose, or signed by another authority. The error is a [`PeerMismatch`] with
//!   the expected and the presented identity. Names are read from the subject alternative names only; common
//!   names prove nothing.
//! - **No resumption.** Each connection authenticates anew, so a certificate that was trusted yesterday gives
//!   no access today.
//! - **Reload.** Changed files are read again ([`keep_fresh`]). New connections use the new certificates, and
//!   established ones continue. If the new files are invalid, the old ones stay in use, and the log gives the
//!   reason.
//! - **Slow handshakes do not affect others.** A handshake has a timeout, and if too many are in progress,
//!   the oldest is cancelled ([`HandshakeLimits`]).
//! - **Exposed secrets are rejected.** Private keys that others can read are not used, nor are other secrets
//!   in files ([`secret_text`]).
//!
//! # Features
//!
//! Without `tls`, which is on by default, connections use plain TCP, and the constructors of the TLS types
//! return [`TlsError::NotBuilt`].
//!
//! # Out of scope
//!
//! - Revocation lists: certificates are short-lived and reloaded, and a change of membership removes a node
//!   from the cluster.
//! - Authorization of clients.
//! - Opening and accepting of sockets.

mod error;
mod certificate;
#[cfg(feature = "tls")]
mod parsed;
#[cfg(feature = "tls")]
mod subject;
mod names;
mod files;
#[cfg(feature = "tls")]
mod pem;
#[cfg_attr(
    not(feature = "tls"),
    expect(dead_code, reason = "without TLS, no value is loaded from files")
)]
mod reload;
#[cfg_attr(
    not(feature = "tls"),
    expect(dead_code, reason = "only TLS types run handshakes through it")
)]
mod handshake;
mod stream;
mod halves;
#[cfg(feature = "tls")]
mod verifier;
#[cfg(feature = "tls")]
mod peers;
#[cfg(feature = "tls")]
mod server;
#[cfg(feature = "tls")]
mod client;
mod clients;
#[cfg(not(feature = "tls"))]
mod without_tls;
#[cfg(feature = "issue")]
pub mod issue;

pub use certificate::ClientCertificate;
#[cfg(feature = "tls")]
pub use client::ClientTls;
pub use clients::{ClientCertificates, OldestVersion};
pub use error::{HandshakeError, PeerFault, PeerMismatch, TlsError};
pub use files::{TlsFiles, secret_text};
pub use halves::{ReadHalf, WriteHalf};
pub use handshake::{HandshakeLimiter, HandshakeLimits};
pub use names::{NameError, PeerName};
#[cfg(feature = "tls")]
pub use peers::PeerTls;
pub use reload::{CHECK_INTERVAL, EXPIRY_WARNING, Refresh, Reloadable, keep_fresh};
#[cfg(feature = "tls")]
pub use server::ServerTls;
pub use stream::Stream;
#[cfg(not(feature = "tls"))]
pub use without_tls::{ClientTls, PeerTls, ServerTls};

#[cfg(feature = "tls")]
use rustls::SupportedProtocolVersion;
#[cfg(feature = "tls")]
use rustls::crypto::CryptoProvider;
#[cfg(feature = "tls")]
use tokio_rustls::TlsStream;
#[cfg(not(feature = "tls"))]
use without_tls::TlsStream;

/// TLS versions between nodes, and by default with clients. The additional features of 1.2 (renegotiation,
/// more cipher suites) have been the target of attacks.
#[cfg(feature = "tls")]
static VERSIONS: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

#[cfg(feature = "tls")]
fn provider() -> std::sync::Arc<CryptoProvider> {
    std::sync::Arc::new(rustls::crypto::ring::default_provider())
}
