//! What clients see of a node: its certificate; and what a node sees of clients: theirs, if they have one.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ServerConfig, SupportedProtocolVersion};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, TlsStream};

use crate::certificate::ClientCertificate;
use crate::clients::{ClientCertificates, OldestVersion};
use crate::error::{HandshakeError, TlsError};
use crate::handshake::{Crowd, HandshakeBounds};
use crate::parsed;
use crate::pem;
use crate::reload::{Kept, Made, Reloadable};
use crate::stream::Stream;
use crate::{VERSIONS, provider};

/// Versions of a listener that accepts 1.2.
static VERSIONS_FROM_12: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];

impl OldestVersion {
    fn versions(self) -> &'static [&'static SupportedProtocolVersion] {
        match self {
            Self::Tls13 => VERSIONS,
            Self::Tls12 => VERSIONS_FROM_12,
        }
    }
}

/// A listener's side of connections with clients. Cheap to clone.
#[derive(Clone)]
pub struct ServerTls {
    kept: Arc<Kept<Shown>>,
    crowd: Arc<Crowd>,
}

/// What clients see.
struct Shown {
    config: Arc<ServerConfig>,
    /// The names of hosts in the certificate.
    hosts: Vec<String>,
}

/// The same one, not one like it.
impl PartialEq for ServerTls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.kept, &other.kept)
    }
}

impl Eq for ServerTls {}

impl ServerTls {
    /// Shows `certificate` to the clients of `what` (`HTTP`, for people). `protocols` are what is spoken inside, for clients that ask (ALPN: `http/1.1`); none:
    /// they need not agree.
    pub fn new(
        what: &'static str,
        certificate: &Path,
        key: &Path,
        clients: ClientCertificates,
        protocols: &[&str],
        oldest: OldestVersion,
        bounds: HandshakeBounds,
    ) -> Result<Self, TlsError> {
        let mut paths = vec![certificate.to_owned(), key.to_owned()];
        paths.extend(clients.authority().map(Path::to_owned));
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        let protocols: Vec<_> = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let make = Box::new(move || config(&certificate, &key, &clients, &protocols, oldest));
        Ok(Self {
            kept: Kept::new(what, paths, make)?,
            crowd: Crowd::new(bounds),
        })
    }

    /// For [`crate::keep_fresh`].
    pub fn reloadable(&self) -> Reloadable {
        self.kept.clone()
    }

    /// The names of hosts that stand in the certificate now, `*.example` among them: as who this side can be called.
    pub fn hosts(&self) -> Vec<String> {
        self.kept.get().hosts.clone()
    }

    /// Makes a protected connection out of one that was accepted, within the bounds; and says who the client has proven to be.
    /// To be run in a task of its own.
    pub async fn accept<S>(&self, socket: S) -> Result<(Stream<S>, Option<ClientCertificate>), HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = self.kept.get().config.clone();
        let handshake = async {
            let stream = TlsAcceptor::from(config).accept(socket).await?;
            let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
            let client = match shown.first() {
                None => None,
                // The library has read it already; what this reader cannot read is nobody's identity.
                Some(certificate) => {
                    let read = parsed::read(certificate)
                        .ok_or(HandshakeError::Certificate(rustls::CertificateError::BadEncoding))?;
                    Some(ClientCertificate {
                        subject: read.subject,
                        names: read.names,
                    })
                }
            };
            Ok((Stream::Tls(Box::new(TlsStream::Server(stream))), client))
        };
        self.crowd.carry_out(handshake).await
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").finish_non_exhaustive()
    }
}

fn config(
    certificate: &Path,
    key: &Path,
    clients: &ClientCertificates,
    protocols: &[Vec<u8>],
    oldest: OldestVersion,
) -> Result<Made<Shown>, TlsError> {
    let own = pem::own(certificate, key)?;
    let rejected = |source| TlsError::Rejected {
        path: certificate.to_owned(),
        source,
    };
    let names = own.chain.first().and_then(parsed::read).map(|read| read.names);
    let hosts = names.unwrap_or_default();
    let hosts = hosts
        .iter()
        .filter_map(|name| name.strip_prefix("DNS:").map(str::to_owned));
    let hosts = hosts.collect();
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(oldest.versions())
        .map_err(rejected)?;
    let builder = match clients.authority() {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(pem::authorities(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
            let verifier = match clients {
                ClientCertificates::Required(_) => verifier,
                _ => verifier.allow_unauthenticated(),
            };
            let verifier = verifier.build().map_err(|error| TlsError::Malformed {
                path: path.to_owned(),
                fact: error.to_string(),
            })?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(own.chain, own.key).map_err(rejected)?;
    config.alpn_protocols = protocols.to_vec();
    // No resumption: neither by tickets (there is no ticketer for 1.2) nor by sessions that are kept here.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Made {
        thing: Shown {
            config: Arc::new(config),
            hosts,
        },
        not_after: Some(own.not_after),
    })
}
