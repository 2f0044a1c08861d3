//! The two halves of a connection for one task that both reads and writes: what can be sent at once is sent without waiting, and
//! what can not is waited for beside everything else.
//!
//! A socket is spoken to directly. Over TLS the halves share a state, and what was given to it may be held back until the
//! socket has room.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::tcp;

/// What is spoken on with a client.
pub(crate) type Stream = transport_security::Stream<listener::Socket>;

/// What is read from.
pub(crate) enum Receiver<'a> {
    Plain(listener::PacedReadHalf<'a>),
    Tls(tokio::io::ReadHalf<&'a mut Stream>),
}

/// What is written to.
pub(crate) enum Sender<'a> {
    Plain(tcp::WriteHalf<'a>),
    Tls {
        half: tokio::io::WriteHalf<&'a mut Stream>,
        /// Something was taken that the socket had no room for.
        holds_back: bool,
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
            let holds_back = false;
            (Receiver::Tls(receiver), Sender::Tls { half, holds_back })
        }
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
    /// Sends as much of `out` as is possible now, and takes it out.
    pub fn send(&mut self, out: &mut BytesMut) -> io::Result<()> {
        match self {
            Self::Plain(half) => {
                while !out.is_empty() {
                    match half.try_write(out) {
                        // All of it, as mostly: then the next answer finds its room where this one was.
                        Ok(sent) if sent == out.len() => out.clear(),
                        Ok(sent) => out.advance(sent),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Err(error) => return Err(error),
                    }
                }
            }
            Self::Tls { half, holds_back } => {
                if out.is_empty() {
                    return Ok(());
                }
                // Nobody is woken by this: who has something left waits in `writable`.
                let mut now = Context::from_waker(Waker::noop());
                while !out.is_empty() {
                    match Pin::new(&mut *half).poll_write(&mut now, out) {
                        Poll::Ready(sent) => out.advance(sent?),
                        Poll::Pending => break,
                    }
                }
                *holds_back = match Pin::new(half).poll_flush(&mut now) {
                    Poll::Ready(flushed) => flushed.map(|()| false)?,
                    Poll::Pending => true,
                };
            }
        }
        Ok(())
    }

    /// Whether something that was sent has not left yet.
    pub fn holds_back(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls { holds_back, .. } => *holds_back,
        }
    }

    /// Waits until what is held back has left, and more can be sent.
    pub async fn writable(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(half) => half.writable().await,
            Self::Tls { half, holds_back } => {
                poll_fn(|context| Pin::new(&mut *half).poll_flush(context)).await?;
                *holds_back = false;
                Ok(())
            }
        }
    }

    /// Tells the other end that nothing follows. The socket has room for so little, or the connection is of no more use anyway.
    ///
    /// A socket that is closed with something unread in it is reset. After this its client still reads an end, as after
    /// ZooKeeper's.
    pub fn say_farewell(&mut self) {
        let mut now = Context::from_waker(Waker::noop());
        let _ = match self {
            Self::Plain(half) => Pin::new(half).poll_shutdown(&mut now),
            Self::Tls { half, .. } => Pin::new(half).poll_shutdown(&mut now),
        };
    }
}
