//! Read and write halves of a connection for a single task that does both: it sends as much as possible
//! without waiting, and waits for the rest beside all other events.
//!
//! A plain socket is used directly. With TLS the halves share a state, which may hold data that the socket
//! did not take yet.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::tcp;

/// Stream to a client.
pub(crate) type Stream = transport_security::Stream<listener::Socket>;

/// Read half.
pub(crate) enum Receiver<'a> {
    Plain(listener::PacedReadHalf<'a>),
    Tls(tokio::io::ReadHalf<&'a mut Stream>),
}

/// Write half.
pub(crate) enum Sender<'a> {
    Plain(tcp::WriteHalf<'a>),
    Tls {
        half: tokio::io::WriteHalf<&'a mut Stream>,
        /// True if the TLS state holds data that the socket did not take yet.
        has_unsent: bool,
    },
}

pub(crate) fn halves(stream: &mut Stream) -> (Receiver<'_>, Sender<'_>) {
    match stream {
        Stream::Plain(socket) => {
            let (receiver, sender) = socket.split();
            (Receiver::Plain(receiver), Sender::Plain(sender))
        }
        stream @ Stream::Tls(_) => {
            let (receiver, half) = tokio::io::split(stream);
            let has_unsent = false;
            (Receiver::Tls(receiver), Sender::Tls { half, has_unsent })
        }
    }
}

/// Reason why no data was received.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiveError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the client closed the connection")]
    Closed,
}

/// Waits for data from the client and appends it to `inbox`. Cancel-safe.
pub(crate) async fn receive(
    stream: &mut (impl AsyncRead + Unpin),
    inbox: &mut BytesMut,
) -> Result<(), ReceiveError> {
    /// Far larger than most requests.
    const ROOM: usize = 4 * 1024;
    // With `AsyncRead`, and not `try_read`: tokio then concludes from a partly filled buffer that no more data is
    // available, which saves a system call after every request.
    let received = match inbox.is_empty() {
        // An idle connection holds no buffer: the data is first read into a buffer on the stack. Buffers of ten thousand
        // idle connections would take forty megabytes.
        true => {
            let read = |context: &mut Context<'_>| {
                let mut room = [const { MaybeUninit::uninit() }; ROOM];
                let mut room = ReadBuf::uninit(&mut room);
                ready!(Pin::new(&mut *stream).poll_read(context, &mut room))?;
                inbox.extend_from_slice(room.filled());
                Poll::Ready(io::Result::Ok(room.filled().len()))
            };
            poll_fn(read).await?
        }
        // The rest of a request that has begun to arrive.
        false => {
            inbox.reserve(ROOM);
            stream.read_buf(inbox).await?
        }
    };
    match received {
        0 => Err(ReceiveError::Closed),
        _ => Ok(()),
    }
}

impl AsyncRead for Receiver<'_> {
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

impl Sender<'_> {
    /// Sends as much of `out` as is possible now, and removes it.
    pub fn send(&mut self, out: &mut BytesMut) -> io::Result<()> {
        match self {
            Self::Plain(half) => {
                while !out.is_empty() {
                    match half.try_write(out) {
                        // Everything was sent, the usual case: `clear` lets the next reply reuse the buffer.
                        Ok(sent) if sent == out.len() => out.clear(),
                        Ok(sent) => out.advance(sent),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Err(error) => return Err(error),
                    }
                }
            }
            Self::Tls { half, has_unsent } => {
                if out.is_empty() {
                    return Ok(());
                }
                // No wakeup is needed: the caller waits in `writable` if data is left.
                let mut now = Context::from_waker(Waker::noop());
                while !out.is_empty() {
                    match Pin::new(&mut *half).poll_write(&mut now, out) {
                        Poll::Ready(sent) => out.advance(sent?),
                        Poll::Pending => break,
                    }
                }
                *has_unsent = match Pin::new(half).poll_flush(&mut now) {
                    Poll::Ready(flushed) => flushed.map(|()| false)?,
                    Poll::Pending => true,
                };
            }
        }
        Ok(())
    }

    /// Returns whether data that was given to `send` has not left yet.
    pub fn has_unsent(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls { has_unsent, .. } => *has_unsent,
        }
    }

    /// Waits until the held data has left, and more can be sent.
    pub async fn writable(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(half) => half.writable().await,
            Self::Tls { half, has_unsent } => {
                poll_fn(|context| Pin::new(&mut *half).poll_flush(context)).await?;
                *has_unsent = false;
                Ok(())
            }
        }
    }

    /// Shuts down the write half. The socket has room for that, or the connection is unusable anyway.
    ///
    /// Closing a socket with unread data resets the connection. After a shutdown the client reads an orderly
    /// end before that, as from ZooKeeper.
    pub fn shut_down(&mut self) {
        let mut now = Context::from_waker(Waker::noop());
        let _ = match self {
            Self::Plain(half) => Pin::new(half).poll_shutdown(&mut now),
            Self::Tls { half, .. } => Pin::new(half).poll_shutdown(&mut now),
        };
    }
}
