//! Detection of a hang-up while a request is served, whatever the caller has sent after the request.
//!
//! hyper reads on while a handler runs, to detect the end of the stream, but stops at the first byte of the next
//! request. A caller that waits for a lock, sends an empty line or a pipelined request and then closes its connection
//! would keep its place in the queue forever. [`Lookahead`] reads the bytes that hyper does not read, buffers them,
//! and hands them to hyper later.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Capacity of a connection's buffer, in bytes, without what hyper has read together with the current request. Some
/// pipelined requests fit.
pub const MAX_PIPELINED_BYTES: usize = 16 * 1024;

/// Time for which a request is still served once the buffer is full. From then on a hang-up cannot be detected. A
/// commit ends within this time. A wait does not, and ends with the connection.
pub const BUFFER_FULL_TIMEOUT: Duration = Duration::from_secs(5);

/// Size of one read, in bytes.
const READ_BYTES: usize = 1024;

/// Connection that hyper reads from and writes to. Cheap to clone: hyper has one clone, and the connection's task uses
/// the other to detect a hang-up.
pub struct Lookahead<S>(Arc<Mutex<Connection<S>>>);

struct Connection<S> {
    stream: S,
    /// Bytes that were read ahead, and that hyper has not read yet.
    buffered: BytesMut,
    /// Set if hyper's last read found nothing. The stream then wakes hyper for the next bytes, so nothing is read ahead.
    hyper_reads: bool,
    /// Timer of [`BUFFER_FULL_TIMEOUT`], while the buffer is full.
    full_timer: Option<Pin<Box<Sleep>>>,
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
            buffered: BytesMut::new(),
            hyper_reads: false,
            full_timer: None,
        })))
    }

    /// Prepares the next poll of hyper's connection; call it before each.
    pub fn begin(&self) {
        self.0.lock().hyper_reads = false;
    }

    /// Polls for a hang-up; to be called after hyper's connection was polled, on the same task. Ready if the caller has
    /// hung up, or if the buffer was full for [`BUFFER_FULL_TIMEOUT`].
    pub fn poll_hang_up(&self, context: &mut Context<'_>) -> Poll<()> {
        let connection = &mut *self.0.lock();
        loop {
            if connection.hyper_reads {
                return Poll::Pending;
            }
            let free = MAX_PIPELINED_BYTES - connection.buffered.len();
            if free == 0 {
                let start_timer = || Box::pin(tokio::time::sleep(BUFFER_FULL_TIMEOUT));
                return connection
                    .full_timer
                    .get_or_insert_with(start_timer)
                    .as_mut()
                    .poll(context);
            }
            let mut bytes = [0; READ_BYTES];
            let mut buffer = ReadBuf::new(&mut bytes[..free.min(READ_BYTES)]);
            let read = Pin::new(&mut connection.stream).poll_read(context, &mut buffer);
            if ready!(read).is_err() || buffer.filled().is_empty() {
                return Poll::Ready(());
            }
            connection.buffered.extend_from_slice(buffer.filled());
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
        if connection.buffered.is_empty() {
            let read = Pin::new(&mut connection.stream).poll_read(context, buffer);
            connection.hyper_reads = read.is_pending();
            return read;
        }
        let length = buffer.remaining().min(connection.buffered.len());
        buffer.put_slice(&connection.buffered[..length]);
        connection.buffered.advance(length);
        connection.full_timer = None;
        if connection.buffered.is_empty() {
            // Frees the buffer: most callers never need it again.
            connection.buffered = BytesMut::new();
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
        let (caller, served) = duplex(4 * MAX_PIPELINED_BYTES);
        (caller, Lookahead::new(served))
    }

    async fn hung_up(ahead: &Lookahead<DuplexStream>) {
        poll_fn(|context| ahead.poll_hang_up(context)).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_hang_up_is_detected_after_buffered_bytes() {
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
        // hyper was woken, but has not read yet.
        assert!(timeout(SHORTLY, hung_up(&ahead)).await.is_err());
        assert!(ahead.0.lock().buffered.is_empty());
        ahead.begin();
        assert!(timeout(SHORTLY, hung_up(&ahead)).await.is_err());
        assert_eq!(&ahead.0.lock().buffered[..], b"a");
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_buffer_ends_the_connection_after_the_timeout() {
        let (mut caller, mut ahead) = connected();
        caller.write_all(&[b'x'; 2 * MAX_PIPELINED_BYTES]).await.unwrap();
        let begin = Instant::now();
        hung_up(&ahead).await;
        assert_eq!(begin.elapsed(), BUFFER_FULL_TIMEOUT);
        assert_eq!(ahead.0.lock().buffered.len(), MAX_PIPELINED_BYTES);
        // Once the request is served the connection continues, and no byte was lost.
        let mut all = vec![0; 2 * MAX_PIPELINED_BYTES];
        ahead.read_exact(&mut all).await.unwrap();
        assert!(all.iter().all(|byte| *byte == b'x'));
        assert!(timeout(2 * BUFFER_FULL_TIMEOUT, hung_up(&ahead)).await.is_err());
    }
}
