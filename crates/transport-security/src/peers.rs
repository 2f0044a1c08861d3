//! TLS connections between nodes, in both directions: both sides present a certificate with the name of a
//! node of the cluster.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::server::NoServerSessionStorage;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use crate::error::{HandshakeError, PeerFault, PeerMismatch, TlsError};
use crate::files::TlsFiles;
use crate::handshake::{HandshakeLimiter, HandshakeLimits};
use crate::names::PeerName;
use crate::pem::{self, Identity};
use crate::reload::{Loaded, Reloadable, ReloadableValue};
use crate::stream::Stream;
use crate::verifier::{CalledPeer, CallingPeer, Expected};
use crate::{VERSIONS, provider};

/// Host name for the library, which requires one. It is not verified: a peer is identified by its node ID,
/// wherever it is.
const PLACEHOLDER_HOST: &str = "peer.invalid";

/// Connections of this node with its peers. Cheap to clone.
#[derive(Clone)]
pub struct PeerTls {
    own: PeerName,
    current: Arc<ReloadableValue<Material>>,
    limiter: Arc<HandshakeLimiter>,
}

/// Configurations and keys from one state of the files.
struct Material {
    cluster: Arc<str>,
    server_config: Arc<ServerConfig>,
    own: Identity,
    roots: Arc<RootCertStore>,
    /// Configuration for each called node, because the expected peer is part of a configuration.
    client_configs: Mutex<BTreeMap<u64, Arc<ClientConfig>>>,
}

/// Maximum number of cached client configurations. Node IDs are never reused, so the cache would grow as
/// nodes come and go.
const MAX_CACHED_CONFIGS: usize = 64;

impl PeerTls {
    /// Loads `files` for the node `node` of `cluster`. The node's own certificate must name it; otherwise its
    /// peers would reject it one by one, and the reason would be hard to find.
    pub fn new(
        files: &TlsFiles,
        cluster: &str,
        node: u64,
        limits: HandshakeLimits,
    ) -> Result<Self, TlsError> {
        let own = PeerName {
            cluster: cluster.to_owned(),
            node,
        };
        let paths = vec![files.certificate.clone(), files.key.clone(), files.ca.clone()];
        let (files, name) = (files.clone(), own.clone());
        let make = Box::new(move || material(&files, &name));
        Ok(Self {
            own,
            current: ReloadableValue::new("peers", paths, make)?,
            limiter: HandshakeLimiter::new(limits),
        })
    }

    /// Name of this node.
    pub fn own_name(&self) -> &PeerName {
        &self.own
    }

    /// Handle for [`crate::keep_fresh`].
    pub fn reloadable(&self) -> Reloadable {
        self.current.clone()
    }

    /// Performs the handshake with `node`, which this node has called on `socket`. It has no timeout; the
    /// caller sets one that also covers connecting and the following exchange.
    ///
    /// With TLS 1.3, this side completes before the other side has verified its certificate: a rejection
    /// arrives with the first read.
    pub async fn connect<S>(&self, node: u64, socket: S) -> Result<Stream<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = self.current.get().client_config(node)?;
        let host = ServerName::try_from(PLACEHOLDER_HOST).expect("the placeholder is a valid host name");
        let stream = TlsConnector::from(config).connect(host, socket).await?;
        Ok(Stream::Tls(Box::new(TlsStream::Client(stream))))
    }

    /// Performs the handshake with a caller, within the limits, and returns the caller's authenticated name.
    /// The node ID that the caller sends afterwards must match it: see [`PeerTls::check`]. To be run in a
    /// task of its own.
    pub async fn accept<S>(&self, socket: S) -> Result<(Stream<S>, PeerName), HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = self.current.get().server_config.clone();
        let handshake = async {
            let stream = TlsAcceptor::from(config).accept(socket).await;
            let stream = stream
                .map_err(HandshakeError::from)
                .map_err(|error| match error {
                    HandshakeError::NoCertificate => {
                        Box::new(self.any_node().mismatch(String::new(), PeerFault::NoCertificate)).into()
                    }
                    other => other,
                })?;
            let presented = stream.get_ref().1.peer_certificates().unwrap_or_default();
            let name = match presented.first() {
                Some(certificate) => self.any_node().name(certificate),
                None => Err(self.any_node().mismatch(String::new(), PeerFault::NoCertificate)),
            };
            let name = name.map_err(Box::new)?;
            Ok((Stream::Tls(Box::new(TlsStream::Server(stream))), name))
        };
        self.limiter.run(handshake).await
    }

    /// Checks that a caller authenticated as `proven` may claim the node ID `claimed`.
    pub fn check(&self, proven: &PeerName, claimed: u64) -> Result<(), PeerMismatch> {
        if proven.node == claimed && proven.cluster == self.own.cluster {
            return Ok(());
        }
        Err(PeerMismatch {
            cluster: self.own.cluster.clone(),
            node: Some(claimed),
            presented: proven.to_string(),
            fault: match proven.cluster == self.own.cluster {
                true => PeerFault::OtherNode(proven.clone()),
                false => PeerFault::OtherCluster(proven.clone()),
            },
        })
    }

    fn any_node(&self) -> Expected {
        Expected {
            cluster: self.own.cluster.as_str().into(),
            node: None,
        }
    }
}

impl fmt::Debug for PeerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerTls")
            .field("own", &self.own.to_string())
            .finish()
    }
}

fn material(files: &TlsFiles, name: &PeerName) -> Result<Loaded<Material>, TlsError> {
    let own = pem::own(&files.certificate, &files.key)?;
    let roots = Arc::new(pem::authorities(&files.ca)?);
    let cluster: Arc<str> = name.cluster.as_str().into();
    let this_node = Expected {
        cluster: cluster.clone(),
        node: Some(name.node),
    };
    this_node
        .name(&own.chain[0])
        .map_err(|refused| TlsError::WrongIdentity {
            path: files.certificate.clone(),
            refused: Box::new(refused),
        })?;
    let rejected = |source| TlsError::Rejected {
        path: files.certificate.clone(),
        source,
    };
    let any_node = Expected {
        cluster: cluster.clone(),
        node: None,
    };
    let mut server_config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(VERSIONS)
        .map_err(rejected)?
        .with_client_cert_verifier(Arc::new(CallingPeer::new(any_node, roots.clone())))
        .with_single_cert(own.chain.clone(), own.key.clone_key())
        .map_err(rejected)?;
    server_config.send_tls13_tickets = 0;
    server_config.session_storage = Arc::new(NoServerSessionStorage {});
    let not_after = Some(own.not_after);
    let material = Material {
        cluster,
        server_config: Arc::new(server_config),
        own,
        roots,
        client_configs: Mutex::default(),
    };
    // Reports an error of the other direction now.
    material.new_client_config(name.node).map_err(rejected)?;
    Ok(Loaded {
        value: material,
        not_after,
    })
}

impl Material {
    fn client_config(&self, node: u64) -> Result<Arc<ClientConfig>, HandshakeError> {
        let mut client_configs = self.client_configs.lock();
        if let Some(config) = client_configs.get(&node) {
            return Ok(config.clone());
        }
        if client_configs.len() >= MAX_CACHED_CONFIGS {
            client_configs.clear();
        }
        let config = Arc::new(self.new_client_config(node).map_err(HandshakeError::Tls)?);
        client_configs.insert(node, config.clone());
        Ok(config)
    }

    fn new_client_config(&self, node: u64) -> Result<ClientConfig, rustls::Error> {
        let expected = Expected {
            cluster: self.cluster.clone(),
            node: Some(node),
        };
        let verifier = CalledPeer {
            expected,
            roots: self.roots.clone(),
            provider: provider(),
        };
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(VERSIONS)?
            // "Dangerous" because it replaces the library's verification of the host name. [`CalledPeer`]
            // verifies the name of the node.
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(self.own.chain.clone(), self.own.key.clone_key())?;
        config.resumption = Resumption::disabled();
        config.enable_sni = false;
        Ok(config)
    }
}
