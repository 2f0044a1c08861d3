//! Connections to servers: what hyper's pool takes them from. Over the network, with TLS or without, or within this process.

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

/// Opens connections.
#[derive(Debug, Clone)]
pub(crate) enum Connector {
    /// To servers with an address.
    Network {
        tcp: HttpConnector,
        /// What servers have to prove; none: nothing, and nothing is protected.
        tls: Option<ClientTls>,
        handshake_timeout: Duration,
    },
    /// To a server in this process.
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

/// Any stream of bytes in both directions.
trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A connection that was made.
pub(crate) struct Dialled(TokioIo<Box<dyn Duplex>>);

impl Dialled {
    fn new(stream: impl Duplex + 'static) -> Self {
        Self(TokioIo::new(Box::new(stream)))
    }
}

impl Service<Uri> for Connector {
    type Response = Dialled;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Dialled>>;

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
            Self::InProcess(connect) => return std::future::ready((connect.0)().map(Dialled::new)).boxed(),
        };
        let host = server.host().unwrap_or_default().to_owned();
        let dial = tcp.call(server);
        async move {
            let socket = dial.await.map_err(io::Error::other)?.into_inner();
            let Some(tls) = tls else {
                return Ok(Dialled::new(socket));
            };
            let secured = tokio::time::timeout(limit, tls.connect(&host, socket)).await;
            Ok(Dialled::new(secured.unwrap_or(Err(HandshakeError::TimedOut))?))
        }
        .boxed()
    }
}

impl Connection for Dialled {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Dialled {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl Write for Dialled {
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
