//! Connections between nodes, in both directions: both sides show a certificate with the name of a node of the cluster.

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

use crate::error::{HandshakeError, PeerFault, PeerRefused, TlsError};
use crate::files::TlsFiles;
use crate::handshake::{Crowd, HandshakeBounds};
use crate::names::PeerName;
use crate::pem::{self, Own};
use crate::reload::{Kept, Made, Reloadable};
use crate::stream::Stream;
use crate::verifier::{CalledPeer, CallingPeer, Expected};
use crate::{VERSIONS, provider};

/// What a host is called where a name has to be given and nobody looks at it: a peer is a node, wherever it is.
const NO_HOST: &str = "peer.invalid";

/// This node among its peers. Cheap to clone.
#[derive(Clone)]
pub struct PeerTls {
    own: PeerName,
    kept: Arc<Kept<Material>>,
    crowd: Arc<Crowd>,
}

/// What is made of the files, at one moment.
struct Material {
    cluster: Arc<str>,
    accepting: Arc<ServerConfig>,
    own: Own,
    roots: Arc<RootCertStore>,
    /// For each node that was called: whom to expect is part of a configuration.
    calling: Mutex<BTreeMap<u64, Arc<ClientConfig>>>,
}

/// Nodes come and go, and their ids are never given again: so many are remembered.
const MAX_CALLED: usize = 64;

impl PeerTls {
    /// Reads `files` for the node `node` of `cluster`. This node's own certificate has to name it; else its peers would refuse it,
    /// one by one, and it would be hard to see why.
    pub fn new(
        files: &TlsFiles,
        cluster: &str,
        node: u64,
        bounds: HandshakeBounds,
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
            kept: Kept::new("peers", paths, make)?,
            crowd: Crowd::new(bounds),
        })
    }

    /// What this node is called.
    pub fn own_name(&self) -> &PeerName {
        &self.own
    }

    /// For [`crate::keep_fresh`].
    pub fn reloadable(&self) -> Reloadable {
        self.kept.clone()
    }

    /// Makes a protected connection out of one to `node`, which this node has called. The caller sees to a deadline, as dialling
    /// and whatever follows belong under the same one.
    ///
    /// With TLS 1.3 this side is done before the other one has looked at its certificate: a refusal comes when something is read.
    pub async fn connect<S>(&self, node: u64, socket: S) -> Result<Stream<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = self.kept.get().calling(node)?;
        let host = ServerName::try_from(NO_HOST).expect("it is a name");
        let stream = TlsConnector::from(config).connect(host, socket).await?;
        Ok(Stream::Tls(Box::new(TlsStream::Client(stream))))
    }

    /// Makes a protected connection out of one that was accepted, within the bounds; and says which node has called. Whatever
    /// that node says of itself afterwards has to agree: see [`PeerTls::check`]. To be run in a task of its own.
    pub async fn accept<S>(&self, socket: S) -> Result<(Stream<S>, PeerName), HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = self.kept.get().accepting.clone();
        let handshake = async {
            let stream = TlsAcceptor::from(config).accept(socket).await;
            let stream = stream
                .map_err(HandshakeError::from)
                .map_err(|error| match error {
                    HandshakeError::NoCertificate => {
                        Box::new(self.anybody().refused(String::new(), PeerFault::NoCertificate)).into()
                    }
                    other => other,
                })?;
            let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
            let name = match shown.first() {
                Some(certificate) => self.anybody().name(certificate),
                None => Err(self.anybody().refused(String::new(), PeerFault::NoCertificate)),
            };
            let name = name.map_err(Box::new)?;
            Ok((Stream::Tls(Box::new(TlsStream::Server(stream))), name))
        };
        self.crowd.carry_out(handshake).await
    }

    /// Whether a caller that has proven to be `proven` may say that it is `claimed`.
    pub fn check(&self, proven: &PeerName, claimed: u64) -> Result<(), PeerRefused> {
        if proven.node == claimed && proven.cluster == self.own.cluster {
            return Ok(());
        }
        Err(PeerRefused {
            cluster: self.own.cluster.clone(),
            node: Some(claimed),
            shown: proven.to_string(),
            fault: match proven.cluster == self.own.cluster {
                true => PeerFault::OtherNode(proven.clone()),
                false => PeerFault::OtherCluster(proven.clone()),
            },
        })
    }

    fn anybody(&self) -> Expected {
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

fn material(files: &TlsFiles, name: &PeerName) -> Result<Made<Material>, TlsError> {
    let own = pem::own(&files.certificate, &files.key)?;
    let roots = Arc::new(pem::authorities(&files.ca)?);
    let cluster: Arc<str> = name.cluster.as_str().into();
    let this_node = Expected {
        cluster: cluster.clone(),
        node: Some(name.node),
    };
    this_node
        .name(&own.chain[0])
        .map_err(|refused| TlsError::NotOurs {
            path: files.certificate.clone(),
            refused: Box::new(refused),
        })?;
    let rejected = |source| TlsError::Rejected {
        path: files.certificate.clone(),
        source,
    };
    let anybody = Expected {
        cluster: cluster.clone(),
        node: None,
    };
    let mut accepting = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(VERSIONS)
        .map_err(rejected)?
        .with_client_cert_verifier(Arc::new(CallingPeer::new(anybody, roots.clone())))
        .with_single_cert(own.chain.clone(), own.key.clone_key())
        .map_err(rejected)?;
    accepting.send_tls13_tickets = 0;
    accepting.session_storage = Arc::new(NoServerSessionStorage {});
    let not_after = Some(own.not_after);
    let material = Material {
        cluster,
        accepting: Arc::new(accepting),
        own,
        roots,
        calling: Mutex::default(),
    };
    // That the other direction works, too, should come out now.
    material.client(name.node).map_err(rejected)?;
    Ok(Made {
        thing: material,
        not_after,
    })
}

impl Material {
    fn calling(&self, node: u64) -> Result<Arc<ClientConfig>, HandshakeError> {
        let mut calling = self.calling.lock();
        if let Some(config) = calling.get(&node) {
            return Ok(config.clone());
        }
        if calling.len() >= MAX_CALLED {
            calling.clear();
        }
        let config = Arc::new(self.client(node).map_err(HandshakeError::Tls)?);
        calling.insert(node, config.clone());
        Ok(config)
    }

    fn client(&self, node: u64) -> Result<ClientConfig, rustls::Error> {
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
            // "Dangerous", because it replaces the library's check of the host's name: by one of the node's name.
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(self.own.chain.clone(), self.own.key.clone_key())?;
        config.resumption = Resumption::disabled();
        config.enable_sni = false;
        Ok(config)
    }
}
