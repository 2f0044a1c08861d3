//! Client side of TLS connections to nodes: the node's certificate must name the host that the client called.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsConnector, TlsStream};

use crate::clients::OldestVersion;
use crate::error::{HandshakeError, TlsError};
use crate::pem;
use crate::provider;
use crate::reload::{Loaded, Reloadable, ReloadableValue};
use crate::stream::Stream;

/// Client side of connections to nodes. Cheap to clone.
#[derive(Clone)]
pub struct ClientTls {
    current: Arc<ReloadableValue<ClientConfig>>,
}

impl ClientTls {
    /// Trusts nodes whose certificates are signed by an authority in `ca` and name the host that is called.
    /// Presents `own` (a certificate and its key) to nodes that request a certificate.
    pub fn new(ca: &Path, own: Option<(&Path, &Path)>) -> Result<Self, TlsError> {
        Self::accepting(OldestVersion::Tls13, ca, own)
    }

    /// Like [`ClientTls::new`], also for servers of other systems that do not speak TLS 1.3.
    pub fn accepting(
        oldest: OldestVersion,
        ca: &Path,
        own: Option<(&Path, &Path)>,
    ) -> Result<Self, TlsError> {
        let ca = ca.to_owned();
        let own: Option<(PathBuf, PathBuf)> = own.map(|(certificate, key)| (certificate.into(), key.into()));
        let mut paths = vec![ca.clone()];
        if let Some((certificate, key)) = &own {
            paths.extend([certificate.clone(), key.clone()]);
        }
        let make = Box::new(move || config(oldest, &ca, own.as_ref()));
        Ok(Self {
            current: ReloadableValue::new("servers", paths, make)?,
        })
    }

    /// Handle for [`crate::keep_fresh`], for clients that live longer than their certificates.
    pub fn reloadable(&self) -> Reloadable {
        self.current.clone()
    }

    /// Performs the handshake with `host` (a name or an address, without a port) on `socket`. It has no
    /// timeout; the caller sets one.
    pub async fn connect<S>(&self, host: &str, socket: S) -> Result<Stream<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        // IPv6 addresses are in brackets where a port follows.
        let bare = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .unwrap_or(host);
        let name =
            ServerName::try_from(bare.to_owned()).map_err(|_| HandshakeError::NoHost(host.to_owned()))?;
        let config = self.current.get();
        let stream = TlsConnector::from(config).connect(name, socket).await?;
        Ok(Stream::Tls(Box::new(TlsStream::Client(stream))))
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").finish_non_exhaustive()
    }
}

fn config(
    oldest: OldestVersion,
    ca: &Path,
    own: Option<&(PathBuf, PathBuf)>,
) -> Result<Loaded<ClientConfig>, TlsError> {
    let roots = pem::authorities(ca)?;
    let rejected = |path: &Path| {
        let path = path.to_owned();
        move |source| TlsError::Rejected { path, source }
    };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(oldest.versions())
        .map_err(rejected(ca))?
        .with_root_certificates(roots);
    let (mut config, not_after) = match own {
        None => (builder.with_no_client_auth(), None),
        Some((certificate, key)) => {
            let own = pem::own(certificate, key)?;
            let config = builder
                .with_client_auth_cert(own.chain, own.key)
                .map_err(rejected(certificate))?;
            (config, Some(own.not_after))
        }
    };
    config.resumption = Resumption::disabled();
    Ok(Loaded {
        value: config,
        not_after,
    })
}
