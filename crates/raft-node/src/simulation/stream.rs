//! Connections of peers, either TCP or simulated. The host decides what a simulated connection does to its
//! bytes; here it is a half to read and a half to write.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use transport_security::Stream;

/// A simulated connection.
pub struct Line {
    /// Bytes from the other side.
    pub reader: Box<dyn AsyncRead + Send + Sync + Unpin>,
    /// Bytes to the other side.
    pub writer: Box<dyn AsyncWrite + Send + Sync + Unpin>,
}

/// Incoming connections of a simulated node: the caller's address and the connection.
pub type Listening = mpsc::UnboundedReceiver<(String, Line)>;

/// Socket at which peers connect.
pub enum PeerListener {
    /// TCP socket.
    Tcp(TcpListener),
    /// Socket of a simulated network.
    Simulated(tokio::sync::Mutex<Listening>),
}

impl From<TcpListener> for PeerListener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl From<Listening> for PeerListener {
    fn from(listening: Listening) -> Self {
        Self::Simulated(tokio::sync::Mutex::new(listening))
    }
}

impl PeerListener {
    /// Accepts the next peer.
    pub async fn accept(&self) -> io::Result<(PeerStream, String)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, from) = listener.accept().await?;
                Ok((PeerStream::Tcp(stream), from.to_string()))
            }
            Self::Simulated(listening) => match listening.lock().await.recv().await {
                Some((from, line)) => Ok((PeerStream::Simulated(line), from)),
                // The machine is gone, and this node with it.
                None => std::future::pending().await,
            },
        }
    }
}

/// Connection of a peer.
pub enum PeerStream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a simulated network.
    Simulated(Line),
}

impl PeerStream {
    /// Connects to a peer.
    pub async fn connect(address: &str) -> io::Result<Self> {
        match super::request(|host| host.connect(address)) {
            Some(connected) => Ok(Self::Simulated(connected.await?)),
            None => Ok(Self::Tcp(TcpStream::connect(address).await?)),
        }
    }

    /// Sets whether small packets are sent at once.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nodelay(on),
            Self::Simulated(_) => Ok(()),
        }
    }
}

/// Connection of a peer, with TLS or without.
pub enum Protected {
    /// Over TCP.
    Real(Stream),
    /// Over a simulated network.
    Simulated(Line),
}

impl Protected {
    /// Splits it into its two directions.
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        match self {
            Self::Real(stream) => {
                let (reader, writer) = stream.into_split();
                (ReadHalf::Real(reader), WriteHalf::Real(writer))
            }
            Self::Simulated(line) => (
                ReadHalf::Simulated(line.reader),
                WriteHalf::Simulated(line.writer),
            ),
        }
    }
}

/// Receiving half of a connection to a peer.
pub enum ReadHalf {
    /// Over TCP.
    Real(transport_security::ReadHalf),
    /// Over a simulated network.
    Simulated(Box<dyn AsyncRead + Send + Sync + Unpin>),
}

/// Sending half of a connection to a peer.
pub enum WriteHalf {
    /// Over TCP.
    Real(transport_security::WriteHalf),
    /// Over a simulated network.
    Simulated(Box<dyn AsyncWrite + Send + Sync + Unpin>),
}

impl AsyncRead for ReadHalf {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Real(half) => Pin::new(half).poll_read(cx, buf),
            Self::Simulated(half) => Pin::new(half).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for WriteHalf {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Real(half) => Pin::new(half).poll_write(cx, bytes),
            Self::Simulated(half) => Pin::new(half).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Real(half) => Pin::new(half).poll_flush(cx),
            Self::Simulated(half) => Pin::new(half).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(match self.get_mut() {
            Self::Real(half) => Pin::new(half).poll_shutdown(cx),
            Self::Simulated(half) => Pin::new(half).poll_shutdown(cx),
        })?;
        Poll::Ready(Ok(()))
    }
}
