//! Everything about TLS behind one door: who is at the other end of a connection, proven by certificates.
//!
//! # The idea
//!
//! A node has three kinds of neighbours, and each kind has a type here that makes streams out of sockets:
//!
//! | type | who is at the other end | what that end has to show |
//! |---|---|---|
//! | [`PeerTls`] | another node, in both directions | a certificate with the name `lockgate://CLUSTER/node/ID` |
//! | [`ServerTls`] | a client, over HTTP or ZooKeeper's protocol | nothing, or a certificate that becomes its identity |
//! | [`ClientTls`] | a node, as a client sees it | a certificate for the host that was called |
//!
//! What comes out is a [`Stream`], which is read and written like a socket. TLS 1.3 is all that is spoken, unless a listener for clients
//! also accepts 1.2 ([`OldestVersion`]).
//!
//! # Guarantees
//!
//! - **Fail closed.** A peer without a certificate, without a name in it, with more than one, of another cluster, with another id
//!   than the one that was called, expired, meant for another purpose, or signed by somebody else is refused during the handshake,
//!   with a [`PeerRefused`] that says what was expected and what was shown. Names are read from the subject's alternative names
//!   only; common names prove nothing.
//! - **No resumption.** Every connection proves everything anew, so what was trusted yesterday is of no use today.
//! - **Reloading.** Files are read again when they change ([`keep_fresh`]); new connections use what is new, established ones
//!   stay. Files that make no sense change nothing: the old ones stay in use, and the log says why.
//! - **A slow handshake costs nobody else anything.** It has a deadline, and when too many are begun the oldest gives way
//!   ([`HandshakeBounds`]).
//! - Private keys that others can read are not used, nor are other secrets in files ([`secret_text`]).
//!
//! # Features
//!
//! Without `tls`, which is on by default, none of this is built: connections are as they are, and what would protect them is refused with
//! [`TlsError::NotBuilt`].
//!
//! # What is absent, on purpose
//!
//! Revocation lists: certificates are short-lived and reloaded, and a node is thrown out of a cluster by its membership.
//! What a client may do once it is known. Sockets: they are accepted and dialled elsewhere.

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
    expect(dead_code, reason = "without TLS nothing is made of files")
)]
mod reload;
#[cfg_attr(
    not(feature = "tls"),
    expect(dead_code, reason = "only TLS makes handshakes of its own")
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
mod absent;
#[cfg(feature = "issue")]
pub mod issue;

#[cfg(not(feature = "tls"))]
pub use absent::{ClientTls, PeerTls, ServerTls};
pub use certificate::ClientCertificate;
#[cfg(feature = "tls")]
pub use client::ClientTls;
pub use clients::{ClientCertificates, OldestVersion};
pub use error::{HandshakeError, PeerFault, PeerRefused, TlsError};
pub use files::{TlsFiles, secret_text};
pub use halves::{ReadHalf, WriteHalf};
pub use handshake::{Crowd, HandshakeBounds};
pub use names::{NameError, PeerName};
#[cfg(feature = "tls")]
pub use peers::PeerTls;
pub use reload::{EXPIRY_WARNING, LOOK_EVERY, Refresh, Reloadable, keep_fresh};
#[cfg(feature = "tls")]
pub use server::ServerTls;
pub use stream::Stream;

#[cfg(not(feature = "tls"))]
use absent::TlsStream;
#[cfg(feature = "tls")]
use rustls::SupportedProtocolVersion;
#[cfg(feature = "tls")]
use rustls::crypto::CryptoProvider;
#[cfg(feature = "tls")]
use tokio_rustls::TlsStream;

/// The only version that nodes speak with each other, and that clients speak by default. What 1.2 has beyond it (renegotiation, choices of
/// ciphers) is what attacks were made of.
#[cfg(feature = "tls")]
static VERSIONS: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

#[cfg(feature = "tls")]
fn provider() -> std::sync::Arc<CryptoProvider> {
    std::sync::Arc::new(rustls::crypto::ring::default_provider())
}
