//! Sees that a caller hangs up while its request is served, whatever it has sent behind the request.
//!
//! While a request is served hyper reads on to see the end of the stream, but only for as long as it has no byte of what comes
//! next: with a pipelined request or an empty line in its buffer it waits for the answer, and a caller that waits for a lock
//! would keep its place for ever. What hyper does not read is read here, and kept for it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// The most bytes that are kept behind a request that is served, beside those that hyper has read along with it: some pipelined
/// requests. Each connection may have so many.
pub const MAX_BEHIND_BYTES: usize = 16 * 1024;

/// For so long a request is served behind which more was sent than is kept: whether its caller hangs up cannot be seen any more. A
/// commit is over by then; a wait is not, and ends with the connection.
pub const BEHIND_PATIENCE: Duration = Duration::from_secs(5);

/// Is read at a time.
const READ_BYTES: usize = 1024;

/// A connection, for hyper to read and write. Cheap to clone: one clone is hyper's, and the other one watches.
pub struct Lookahead<S>(Arc<Mutex<Connection<S>>>);

struct Connection<S> {
    stream: S,
    /// Was read here, and not by hyper yet.
    behind: BytesMut,
    /// Whether hyper has read in vain, and so is woken by whatever comes next.
    hyper_reads: bool,
    /// Until when more is kept back than is read.
    patience: Option<Pin<Box<Sleep>>>,
}

impl<S> Clone for Lookahead<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Lookahead<S> {
    pub fn new(stream: S) -> Self {
        Self(Arc::new(Mutex::new(Connection {
            stream,
            behind: BytesMut::new(),
            hyper_reads: false,
            patience: None,
        })))
    }

    /// Before hyper goes on with the connection.
    pub fn begin(&self) {
        self.0.lock().hyper_reads = false;
    }

    /// After that, on the same task. Ready: the caller has hung up, or what it sends is too much to see whether it does.
    pub fn poll_hang_up(&self, context: &mut Context<'_>) -> Poll<()> {
        let connection = &mut *self.0.lock();
        loop {
            if connection.hyper_reads {
                return Poll::Pending;
            }
            let room = MAX_BEHIND_BYTES - connection.behind.len();
            if room == 0 {
                let patience = || Box::pin(tokio::time::sleep(BEHIND_PATIENCE));
                return connection
                    .patience
                    .get_or_insert_with(patience)
                    .as_mut()
                    .poll(context);
            }
            let mut bytes = [0; READ_BYTES];
            let mut buffer = ReadBuf::new(&mut bytes[..room.min(READ_BYTES)]);
            let read = Pin::new(&mut connection.stream).poll_read(context, &mut buffer);
            if ready!(read).is_err() || buffer.filled().is_empty() {
                return Poll::Ready(());
            }
            connection.behind.extend_from_slice(buffer.filled());
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lookahead<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let connection = &mut *self.0.lock();
        if connection.behind.is_empty() {
            let read = Pin::new(&mut connection.stream).poll_read(context, buffer);
            connection.hyper_reads = read.is_pending();
            return read;
        }
        let length = buffer.remaining().min(connection.behind.len());
        buffer.put_slice(&connection.behind[..length]);
        connection.behind.advance(length);
        connection.patience = None;
        if connection.behind.is_empty() {
            // Few callers ever need it again.
            connection.behind = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Lookahead<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0.lock().stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0.lock().stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.lock().stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.lock().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.lock().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::{Instant, timeout};

    use super::*;

    const SHORTLY: Duration = Duration::from_millis(10);

    fn connected() -> (DuplexStream, Lookahead<DuplexStream>) {
        let (caller, served) = duplex(4 * MAX_BEHIND_BYTES);
        (caller, Lookahead::new(served))
    }

    async fn hung_up(ahead: &Lookahead<DuplexStream>) {
        poll_fn(|context| ahead.poll_hang_up(context)).await
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_is_seen_behind_bytes_which_are_kept() {
        let (mut caller, mut ahead) = connected();
        caller.write_all(b"next").await.unwrap();
        assert!(timeout(SHORTLY, hung_up(&ahead)).await.is_err(), "it is there");
        drop(caller);
        timeout(SHORTLY, hung_up(&ahead)).await.expect("it has hung up");
        let mut rest = String::new();
        ahead.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "next");
    }

    #[tokio::test(start_paused = true)]
    async fn hyper_reads_first() {
        let (mut caller, mut ahead) = connected();
        let mut byte = [0; 1];
        assert!(timeout(SHORTLY, ahead.read_exact(&mut byte)).await.is_err());
        caller.write_all(b"a").await.unwrap();
        // It was woken, and has not read yet.
        assert!(timeout(SHORTLY, hung_up(&ahead)).await.is_err());
        assert!(ahead.0.lock().behind.is_empty());
        ahead.begin();
        assert!(timeout(SHORTLY, hung_up(&ahead)).await.is_err());
        assert_eq!(&ahead.0.lock().behind[..], b"a");
    }

    #[tokio::test(start_paused = true)]
    async fn who_sends_more_than_is_kept_is_served_for_a_while() {
        let (mut caller, mut ahead) = connected();
        caller.write_all(&[b'x'; 2 * MAX_BEHIND_BYTES]).await.unwrap();
        let begin = Instant::now();
        hung_up(&ahead).await;
        assert_eq!(begin.elapsed(), BEHIND_PATIENCE);
        assert_eq!(ahead.0.lock().behind.len(), MAX_BEHIND_BYTES);
        // Once its request is served it goes on, and nothing was lost.
        let mut all = vec![0; 2 * MAX_BEHIND_BYTES];
        ahead.read_exact(&mut all).await.unwrap();
        assert!(all.iter().all(|byte| *byte == b'x'));
        assert!(timeout(2 * BEHIND_PATIENCE, hung_up(&ahead)).await.is_err());
    }
}
