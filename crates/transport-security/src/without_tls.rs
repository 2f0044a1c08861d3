//! Stand-ins for the TLS types in a build without the feature `tls`. They have no values, and their
//! constructors return [`TlsError::NotBuilt`], so that callers need no conditional compilation of their own.

use std::convert::Infallible;
use std::io;
use std::marker::PhantomData;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::certificate::ClientCertificate;
use crate::clients::{ClientCertificates, OldestVersion};
use crate::error::{HandshakeError, PeerMismatch, TlsError};
use crate::files::TlsFiles;
use crate::handshake::HandshakeLimits;
use crate::names::PeerName;
use crate::reload::Reloadable;
use crate::stream::Stream;

/// TLS stream; has no values in this build.
#[derive(Debug)]
pub struct TlsStream<S>(Infallible, PhantomData<S>);

impl<S> TlsStream<S> {
    pub(crate) fn get_ref(&self) -> (&S, ()) {
        match self.0 {}
    }

    pub(crate) fn get_mut(&mut self) -> (&mut S, ()) {
        match self.0 {}
    }
}

impl<S: Unpin> AsyncRead for TlsStream<S> {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }
}

impl<S: Unpin> AsyncWrite for TlsStream<S> {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        match self.0 {}
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }
}

/// Client side of connections to nodes; has no values in this build.
#[derive(Debug, Clone)]
pub struct ClientTls(Infallible);

impl ClientTls {
    /// Returns [`TlsError::NotBuilt`].
    pub fn new(_ca: &Path, _own: Option<(&Path, &Path)>) -> Result<Self, TlsError> {
        Err(TlsError::NotBuilt)
    }

    /// Returns [`TlsError::NotBuilt`].
    pub fn accepting(
        _oldest: OldestVersion,
        _ca: &Path,
        _own: Option<(&Path, &Path)>,
    ) -> Result<Self, TlsError> {
        Err(TlsError::NotBuilt)
    }

    /// Handle for [`crate::keep_fresh`].
    pub fn reloadable(&self) -> Reloadable {
        match self.0 {}
    }

    /// Performs the handshake on `socket`.
    pub async fn connect<S>(&self, _host: &str, _socket: S) -> Result<Stream<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        match self.0 {}
    }
}

/// Listener side of connections from clients; has no values in this build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTls(Infallible);

impl ServerTls {
    /// Returns [`TlsError::NotBuilt`].
    pub fn new(
        _what: &'static str,
        _certificate: &Path,
        _key: &Path,
        _clients: ClientCertificates,
        _protocols: &[&str],
        _oldest: OldestVersion,
        _bounds: HandshakeLimits,
    ) -> Result<Self, TlsError> {
        Err(TlsError::NotBuilt)
    }

    /// Handle for [`crate::keep_fresh`].
    pub fn reloadable(&self) -> Reloadable {
        match self.0 {}
    }

    /// Host names in the certificate.
    pub fn hosts(&self) -> Vec<String> {
        match self.0 {}
    }

    /// Performs the handshake on `_socket`.
    pub async fn accept<S>(
        &self,
        _socket: S,
    ) -> Result<(Stream<S>, Option<ClientCertificate>), HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        match self.0 {}
    }
}

/// Connections of a node with its peers; has no values in this build.
#[derive(Debug, Clone)]
pub struct PeerTls(Infallible);

impl PeerTls {
    /// Returns [`TlsError::NotBuilt`].
    pub fn new(
        _files: &TlsFiles,
        _cluster: &str,
        _node: u64,
        _bounds: HandshakeLimits,
    ) -> Result<Self, TlsError> {
        Err(TlsError::NotBuilt)
    }

    /// Name of this node.
    pub fn own_name(&self) -> &PeerName {
        match self.0 {}
    }

    /// Handle for [`crate::keep_fresh`].
    pub fn reloadable(&self) -> Reloadable {
        match self.0 {}
    }

    /// Performs the handshake on `_socket`.
    pub async fn connect<S>(&self, _node: u64, _socket: S) -> Result<Stream<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        match self.0 {}
    }

    /// Performs the handshake on `_socket`.
    pub async fn accept<S>(&self, _socket: S) -> Result<(Stream<S>, PeerName), HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        match self.0 {}
    }

    /// Checks that the authenticated caller may claim the node ID `_claimed`.
    pub fn check(&self, _proven: &PeerName, _claimed: u64) -> Result<(), PeerMismatch> {
        match self.0 {}
    }
}
