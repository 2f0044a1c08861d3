//! Frames: encoding of messages to length-prefixed bytes, and decoding.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::codec::{self, MAX_ENCODED_BYTES};

/// Appends a frame with `message` in it to `out`.
pub fn put_frame<T: Serialize>(out: &mut BytesMut, message: &T) {
    let body = codec::encode(message);
    out.reserve(4 + body.len());
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(&body);
}

/// Sends encoded frames. Over TLS, written bytes are on their way only after the flush.
pub async fn send_frames(to: &mut (impl AsyncWrite + Unpin), frames: &[u8]) -> io::Result<()> {
    to.write_all(frames).await?;
    to.flush().await
}

/// Reads frames from one end of a connection. A cancelled read loses no bytes.
pub struct FrameReader<R> {
    from: R,
    buffer: BytesMut,
    max_bytes: usize,
}

/// Bytes requested from the socket at a time.
const READ_CHUNK_BYTES: usize = 64 * 1024;

/// Maximum size of a hello: a cluster's name, addresses, and some numbers. An unidentified caller gets no larger buffer.
pub const MAX_HELLO_BYTES: usize = 8 * 1024;

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Creates a reader of `from`.
    pub fn new(from: R) -> Self {
        Self {
            from,
            buffer: BytesMut::with_capacity(READ_CHUNK_BYTES),
            max_bytes: MAX_ENCODED_BYTES,
        }
    }

    /// Creates a reader for an unidentified caller: frames must be short, and the buffer is small.
    pub fn for_handshake(from: R) -> Self {
        Self {
            from,
            buffer: BytesMut::new(),
            max_bytes: MAX_HELLO_BYTES,
        }
    }

    /// Admits frames of any size, once the caller is identified as a peer.
    pub fn allow_large_frames(&mut self) {
        self.max_bytes = MAX_ENCODED_BYTES;
    }

    /// Returns the next frame's bytes. `None` if the peer closed the connection between two frames.
    pub async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if let Some(frame) = self.take_buffered()? {
                return Ok(Some(frame));
            }
            self.buffer.reserve(READ_CHUNK_BYTES.min(self.max_bytes));
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                return match self.buffer.is_empty() {
                    true => Ok(None),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
        }
    }

    /// Returns a frame that is already in the buffer.
    pub fn take_buffered(&mut self) -> io::Result<Option<Bytes>> {
        let Some(length) = self.buffer.first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > self.max_bytes {
            let what = format!("a frame of {length} bytes is larger than any that a peer sends");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        if self.buffer.len() < 4 + length {
            return Ok(None);
        }
        self.buffer.advance(4);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    /// Returns the next frame as a decoded message.
    pub async fn message<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        match self.next().await? {
            None => Ok(None),
            Some(frame) => decode_frame(&frame).map(Some),
        }
    }
}

/// Decodes a frame's bytes.
pub fn decode_frame<T: DeserializeOwned>(frame: &[u8]) -> io::Result<T> {
    codec::decode(frame).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
