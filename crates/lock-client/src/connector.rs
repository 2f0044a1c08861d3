//! Connections to servers, with TLS or without: what hyper's pool takes them from.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use hyper::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tower_service::Service;
use transport_security::{ClientTls, HandshakeError, Stream};

/// Dials servers.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    pub tcp: HttpConnector,
    /// What servers have to prove; none: nothing, and nothing is protected.
    pub tls: Option<ClientTls>,
    pub handshake_timeout: Duration,
}

/// A connection that was made.
pub(crate) struct Dialled(TokioIo<Stream>);

impl Service<Uri> for Connector {
    type Response = Dialled;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Dialled>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tcp.poll_ready(context).map_err(io::Error::other)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let host = server.host().unwrap_or_default().to_owned();
        let (dial, tls, limit) = (self.tcp.call(server), self.tls.clone(), self.handshake_timeout);
        async move {
            let socket = dial.await.map_err(io::Error::other)?.into_inner();
            let stream = match tls {
                None => Stream::Plain(socket),
                Some(tls) => tokio::time::timeout(limit, tls.connect(&host, socket))
                    .await
                    .unwrap_or(Err(HandshakeError::TimedOut))?,
            };
            Ok(Dialled(TokioIo::new(stream)))
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
