//! Connector of hyper's pool: opens connections over the network, with or without TLS, or within this process.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use hyper::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tower_service::Service;
use transport_security::{ClientTls, HandshakeError};

/// Opens connections to servers.
#[derive(Debug, Clone)]
pub(crate) enum Connector {
    /// Servers with an address.
    Network {
        tcp: HttpConnector,
        /// Certificates that servers have to prove; `None` for connections without TLS.
        tls: Option<ClientTls>,
        handshake_timeout: Duration,
    },
    /// A server in this process.
    InProcess(InProcess),
}

/// Opens connections to a server in this process; see [`crate::LockClient::in_process`].
#[derive(Clone)]
pub(crate) struct InProcess(pub Arc<dyn Fn() -> io::Result<DuplexStream> + Send + Sync>);

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InProcess")
    }
}

/// Stream of bytes in both directions.
trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Open connection to a server.
pub(crate) struct ServerConnection(TokioIo<Box<dyn Duplex>>);

impl ServerConnection {
    fn new(stream: impl Duplex + 'static) -> Self {
        Self(TokioIo::new(Box::new(stream)))
    }
}

impl Service<Uri> for Connector {
    type Response = ServerConnection;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<ServerConnection>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Network { tcp, .. } => tcp.poll_ready(context).map_err(io::Error::other),
            Self::InProcess(_) => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let (tcp, tls, limit) = match self {
            Self::Network {
                tcp,
                tls,
                handshake_timeout,
            } => (tcp, tls.clone(), *handshake_timeout),
            Self::InProcess(connect) => {
                return std::future::ready((connect.0)().map(ServerConnection::new)).boxed();
            }
        };
        let host = server.host().unwrap_or_default().to_owned();
        let dial = tcp.call(server);
        async move {
            let socket = dial.await.map_err(io::Error::other)?.into_inner();
            let Some(tls) = tls else {
                return Ok(ServerConnection::new(socket));
            };
            let secured = tokio::time::timeout(limit, tls.connect(&host, socket)).await;
            Ok(ServerConnection::new(
                secured.unwrap_or(Err(HandshakeError::TimedOut))?,
            ))
        }
        .boxed()
    }
}

impl Connection for ServerConnection {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for ServerConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl Write for ServerConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
