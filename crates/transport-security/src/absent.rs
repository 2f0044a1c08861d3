//! The types of connections over TLS in a program that is built without the feature `tls`: nobody can make one, and an attempt is refused
//! with [`TlsError::NotBuilt`]. So callers need no condition of their own.

use std::convert::Infallible;
use std::io;
use std::marker::PhantomData;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::certificate::ClientCertificate;
use crate::clients::{ClientCertificates, OldestVersion};
use crate::error::{HandshakeError, PeerRefused, TlsError};
use crate::files::TlsFiles;
use crate::handshake::HandshakeBounds;
use crate::names::PeerName;
use crate::reload::Reloadable;
use crate::stream::Stream;

/// A stream over TLS, which there is none of.
#[derive(Debug)]
pub struct TlsStream<S>(Infallible, PhantomData<S>);

impl<S> TlsStream<S> {
    pub(crate) fn get_ref(&self) -> (&S, ()) {
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

/// A client's side of connections with nodes, which there is none of.
#[derive(Debug, Clone)]
pub struct ClientTls(Infallible);

impl ClientTls {
    /// Refused: the program is built without TLS.
    pub fn new(_ca: &Path, _own: Option<(&Path, &Path)>) -> Result<Self, TlsError> {
        Err(TlsError::NotBuilt)
    }

    /// For [`crate::keep_fresh`].
    pub fn reloadable(&self) -> Reloadable {
        match self.0 {}
    }

    /// Makes a protected connection.
    pub async fn connect<S>(&self, _host: &str, _socket: S) -> Result<Stream<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        match self.0 {}
    }
}

/// A listener's side of connections with clients, which there is none of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTls(Infallible);

impl ServerTls {
    /// Refused: the program is built without TLS.
    pub fn new(
        _what: &'static str,
        _certificate: &Path,
        _key: &Path,
        _clients: ClientCertificates,
        _protocols: &[&str],
        _oldest: OldestVersion,
        _bounds: HandshakeBounds,
    ) -> Result<Self, TlsError> {
        Err(TlsError::NotBuilt)
    }

    /// For [`crate::keep_fresh`].
    pub fn reloadable(&self) -> Reloadable {
        match self.0 {}
    }

    /// The names of hosts in the certificate.
    pub fn hosts(&self) -> Vec<String> {
        match self.0 {}
    }

    /// Makes a protected connection.
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

/// A node among its peers, which there is none of.
#[derive(Debug, Clone)]
pub struct PeerTls(Infallible);

impl PeerTls {
    /// Refused: the program is built without TLS.
    pub fn new(
        _files: &TlsFiles,
        _cluster: &str,
        _node: u64,
        _bounds: HandshakeBounds,
    ) -> Result<Self, TlsError> {
        Err(TlsError::NotBuilt)
    }

    /// Name of this node.
    pub fn own_name(&self) -> &PeerName {
        match self.0 {}
    }

    /// For [`crate::keep_fresh`].
    pub fn reloadable(&self) -> Reloadable {
        match self.0 {}
    }

    /// Makes a protected connection.
    pub async fn connect<S>(&self, _node: u64, _socket: S) -> Result<Stream<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        match self.0 {}
    }

    /// Makes a protected connection.
    pub async fn accept<S>(&self, _socket: S) -> Result<(Stream<S>, PeerName), HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        match self.0 {}
    }

    /// Whether a caller may say that it is `claimed`.
    pub fn check(&self, _proven: &PeerName, _claimed: u64) -> Result<(), PeerRefused> {
        match self.0 {}
    }
}
