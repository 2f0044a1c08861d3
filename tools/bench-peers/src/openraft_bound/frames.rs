//! Frames between the three processes: the length in four bytes (little-endian), a number in eight bytes, and
//! the rest.

use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Maximum length of a frame: more than an entry with one request of every client in a measurement.
const MAX_FRAME_BYTES: usize = 4 * 1024 * 1024;

/// Takes the number at the start of a frame.
pub fn take_number(frame: &mut Bytes) -> io::Result<u64> {
    frame
        .try_get_u64_le()
        .map_err(|_| io::Error::other("a frame has no number"))
}

/// Appends a frame to the bytes that are sent next.
pub fn put_numbered(out: &mut BytesMut, number: u64, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.reserve(4 + 8 + length);
    out.put_u32_le((8 + length) as u32);
    out.put_u64_le(number);
    parts.iter().for_each(|part| out.put_slice(part));
}

/// Reader of frames; one read may return several.
pub struct Frames<R> {
    from: R,
    read: BytesMut,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    pub fn new(from: R) -> Self {
        Self {
            from,
            read: BytesMut::with_capacity(64 * 1024),
        }
    }

    /// Returns the next frame if it is already in the buffer.
    fn buffered(&mut self) -> io::Result<Option<Bytes>> {
        let Some(length) = self.read.first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > MAX_FRAME_BYTES {
            return Err(io::Error::other("a frame is too long"));
        }
        if self.read.len() < 4 + length {
            return Ok(None);
        }
        self.read.advance(4);
        Ok(Some(self.read.split_to(length).freeze()))
    }

    /// Returns the next frame; `None` if the other end has closed.
    pub async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if let Some(frame) = self.buffered()? {
                return Ok(Some(frame));
            }
            if self.from.read_buf(&mut self.read).await? == 0 {
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn next_returns_whole_frames() {
        let (here, mut there) = tokio::io::duplex(3);
        let sending = tokio::spawn(async move {
            tokio::io::AsyncWriteExt::write_all(&mut there, b"\x03\0\0\0abc\0\0\0\0\x01\0\0\0d").await
        });
        let mut frames = Frames::new(here);
        let mut read = Vec::new();
        while let Some(frame) = frames.next().await.unwrap() {
            read.push(frame);
        }
        assert_eq!(read, [&b"abc"[..], b"", b"d"]);
        sending.await.unwrap().unwrap();
    }
}
