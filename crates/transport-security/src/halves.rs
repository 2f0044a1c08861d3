//! Read and write halves of a TCP connection, so that two tasks can own them.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, tcp};

use crate::TlsStream;
use crate::stream::Stream;

/// Read half. With TLS, both halves share the connection's state under a lock that is held for one call.
#[derive(Debug)]
pub enum ReadHalf {
    /// Plain TCP.
    Plain(tcp::OwnedReadHalf),
    /// TLS.
    Tls(tokio::io::ReadHalf<Box<TlsStream<TcpStream>>>),
}

/// Write half. As with [`Stream`], written bytes may be buffered until a flush.
#[derive(Debug)]
pub enum WriteHalf {
    /// Plain TCP.
    Plain(tcp::OwnedWriteHalf),
    /// TLS.
    Tls(tokio::io::WriteHalf<Box<TlsStream<TcpStream>>>),
}

impl Stream {
    /// Splits the connection into its halves.
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        match self {
            Self::Plain(socket) => {
                let (reader, writer) = socket.into_split();
                (ReadHalf::Plain(reader), WriteHalf::Plain(writer))
            }
            Self::Tls(stream) => {
                let (reader, writer) = tokio::io::split(stream);
                (ReadHalf::Tls(reader), WriteHalf::Tls(writer))
            }
        }
    }
}

impl AsyncRead for ReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(half) => Pin::new(half).poll_read(context, buffer),
            Self::Tls(half) => Pin::new(half).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for WriteHalf {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(half) => Pin::new(half).poll_write(context, bytes),
            Self::Tls(half) => Pin::new(half).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(half) => Pin::new(half).poll_write_vectored(context, pieces),
            Self::Tls(half) => Pin::new(half).poll_write_vectored(context, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(half) => half.is_write_vectored(),
            Self::Tls(half) => half.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(half) => Pin::new(half).poll_flush(context),
            Self::Tls(half) => Pin::new(half).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(half) => Pin::new(half).poll_shutdown(context),
            Self::Tls(half) => Pin::new(half).poll_shutdown(context),
        }
    }
}
