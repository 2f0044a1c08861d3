//! The two halves of a connection's end, as a node holds them.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{ConnId, Parcel, Shared, WINDOW_BYTES};

/// Reader of one direction.
pub struct Reader {
    network: Shared,
    conn: ConnId,
    direction: usize,
}

/// Writer of one direction.
pub struct Writer {
    network: Shared,
    conn: ConnId,
    direction: usize,
    ended: bool,
}

impl Reader {
    pub fn new(network: Shared, conn: ConnId, direction: usize) -> Self {
        Self {
            network,
            conn,
            direction,
        }
    }
}

impl Writer {
    pub fn new(network: Shared, conn: ConnId, direction: usize) -> Self {
        Self {
            network,
            conn,
            direction,
            ended: false,
        }
    }

    fn end(&mut self) {
        if !self.ended {
            self.ended = true;
            self.network.lock().send(self.conn, self.direction, Parcel::End);
        }
    }
}

fn broken() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

impl AsyncRead for Reader {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut network = self.network.lock();
        let Some(conn) = network.conns.get_mut(&self.conn) else {
            return Poll::Ready(Err(broken()));
        };
        if conn.broken[1 - self.direction] {
            return Poll::Ready(Err(broken()));
        }
        let direction = &mut conn.directions[self.direction];
        let Some(first) = direction.arrived.front_mut() else {
            if direction.ended {
                return Poll::Ready(Ok(()));
            }
            direction.reader = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let taken = first.len().min(buf.remaining());
        buf.put_slice(&first[..taken]);
        first.advance(taken);
        if first.is_empty() {
            direction.arrived.pop_front();
        }
        direction.unread -= taken;
        let writer = direction.writer.take();
        drop(network);
        if let Some(writer) = writer {
            writer.wake();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Writer {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut network = self.network.lock();
        let Some(conn) = network.conns.get_mut(&self.conn) else {
            return Poll::Ready(Err(broken()));
        };
        if conn.broken[self.direction] {
            return Poll::Ready(Err(broken()));
        }
        let direction = &mut conn.directions[self.direction];
        let room = WINDOW_BYTES.saturating_sub(direction.unread).min(bytes.len());
        if room == 0 && !bytes.is_empty() {
            direction.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let parcel = Parcel::Bytes(Bytes::copy_from_slice(&bytes[..room]));
        network.send(self.conn, self.direction, parcel);
        Poll::Ready(Ok(room))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end();
        Poll::Ready(Ok(()))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut network = self.network.lock();
        // Parcels that arrive from now on are rejected.
        if let Some(conn) = network.conns.get_mut(&self.conn) {
            conn.deaf[1 - self.direction] = true;
        }
        network.release_half(self.conn);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.end();
        self.network.lock().release_half(self.conn);
    }
}
