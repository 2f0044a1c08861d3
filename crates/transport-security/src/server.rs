//! Listener side of TLS connections from clients: it presents its certificate, and reads the client's if it
//! presents one.

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
use crate::handshake::{HandshakeLimiter, HandshakeLimits};
use crate::parsed;
use crate::pem;
use crate::reload::{Loaded, Reloadable, ReloadableValue};
use crate::stream::Stream;
use crate::{VERSIONS, provider};

/// Versions of a side that accepts TLS 1.2.
static VERSIONS_FROM_12: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];

impl OldestVersion {
    pub(crate) fn versions(self) -> &'static [&'static SupportedProtocolVersion] {
        match self {
            Self::Tls13 => VERSIONS,
            Self::Tls12 => VERSIONS_FROM_12,
        }
    }
}

/// Listener side of connections from clients. Cheap to clone.
#[derive(Clone)]
pub struct ServerTls {
    current: Arc<ReloadableValue<ServerMaterial>>,
    limiter: Arc<HandshakeLimiter>,
}

/// Configuration from one state of the files.
struct ServerMaterial {
    config: Arc<ServerConfig>,
    /// Host names in the certificate.
    hosts: Vec<String>,
}

/// Two handles are equal if they share their state.
impl PartialEq for ServerTls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.current, &other.current)
    }
}

impl Eq for ServerTls {}

impl ServerTls {
    /// Presents `certificate` to the clients of the listener `what` (`HTTP`, for the log). `protocols` are
    /// the protocols on top of TLS, for clients that use ALPN (`http/1.1`); if there are none, ALPN is not
    /// used.
    pub fn new(
        what: &'static str,
        certificate: &Path,
        key: &Path,
        clients: ClientCertificates,
        protocols: &[&str],
        oldest: OldestVersion,
        limits: HandshakeLimits,
    ) -> Result<Self, TlsError> {
        let mut paths = vec![certificate.to_owned(), key.to_owned()];
        paths.extend(clients.authority().map(Path::to_owned));
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        let protocols: Vec<_> = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let make = Box::new(move || config(&certificate, &key, &clients, &protocols, oldest));
        Ok(Self {
            current: ReloadableValue::new(what, paths, make)?,
            limiter: HandshakeLimiter::new(limits),
        })
    }

    /// Handle for [`crate::keep_fresh`].
    pub fn reloadable(&self) -> Reloadable {
        self.current.clone()
    }

    /// Host names in the current certificate, wildcards like `*.example` among them, by which clients can
    /// call this listener.
    pub fn hosts(&self) -> Vec<String> {
        self.current.get().hosts.clone()
    }

    /// Performs the handshake with a client, within the limits, and returns the client's authenticated
    /// identity. To be run in a task of its own.
    pub async fn accept<S>(&self, socket: S) -> Result<(Stream<S>, Option<ClientCertificate>), HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = self.current.get().config.clone();
        let handshake = async {
            let stream = TlsAcceptor::from(config).accept(socket).await?;
            let presented = stream.get_ref().1.peer_certificates().unwrap_or_default();
            let client = match presented.first() {
                None => None,
                // The library has parsed the certificate already. If this parser cannot, the certificate
                // gives no identity.
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
        self.limiter.run(handshake).await
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
) -> Result<Loaded<ServerMaterial>, TlsError> {
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
    // Disables resumption, both by tickets (1.2 has no ticketer) and by stored sessions.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Loaded {
        value: ServerMaterial {
            config: Arc::new(config),
            hosts,
        },
        not_after: Some(own.not_after),
    })
}
