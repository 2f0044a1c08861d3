//! Requests of clients: acquire and release of a lock or of a permit.

use std::io;

use anyhow::Context;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::sync::{mpsc, oneshot};

use super::locks::ReplyTo;

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// Acquire a permit of the key.
    Acquire = 1,
    /// Release the permit.
    Release = 2,
}

/// A request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub operation: Operation,
    /// Number of simultaneous holders of the key.
    pub permits: u8,
    pub key: Bytes,
}

/// A request with its bytes as they are stored, and the caller that waits for its outcome.
pub struct Submitted {
    pub request: Request,
    pub bytes: Bytes,
    pub reply_to: ReplyTo,
}

impl Request {
    /// Encodes the request, followed by the data that the client sent with it.
    pub fn encode(&self, data: &[u8]) -> Bytes {
        let mut bytes = BytesMut::with_capacity(4 + self.key.len() + data.len());
        bytes.put_u8(self.operation as u8);
        bytes.put_u8(self.permits);
        bytes.put_u16_le(self.key.len() as u16);
        bytes.put_slice(&self.key);
        bytes.put_slice(data);
        bytes.freeze()
    }

    /// Decodes a request; the data behind it are ignored.
    pub fn decode(mut bytes: Bytes) -> io::Result<Self> {
        let invalid = || io::Error::other("not a request");
        if bytes.len() < 4 {
            return Err(invalid());
        }
        let operation = match bytes.get_u8() {
            1 => Operation::Acquire,
            2 => Operation::Release,
            _ => return Err(invalid()),
        };
        let permits = bytes.get_u8();
        let key = usize::from(bytes.get_u16_le());
        if bytes.len() < key {
            return Err(invalid());
        }
        Ok(Self {
            operation,
            permits,
            key: bytes.split_to(key),
        })
    }
}

/// Submits a request and waits for its outcome: it is committed, and an acquire has its permit.
pub async fn submit(
    submissions: &mpsc::UnboundedSender<Submitted>,
    request: Request,
    bytes: Bytes,
) -> anyhow::Result<()> {
    let (reply_to, outcome) = oneshot::channel();
    let submitted = Submitted {
        request,
        bytes,
        reply_to: ReplyTo::Client(reply_to),
    };
    submissions
        .send(submitted)
        .ok()
        .context("the server has stopped")?;
    outcome.await.context("the server has stopped")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decode_inverts_encode_and_rejects_malformed_requests() {
        let request = Request {
            operation: Operation::Acquire,
            permits: 4,
            key: Bytes::from_static(b"lock"),
        };
        assert_eq!(Request::decode(request.encode(b"data")).unwrap(), request);
        for wrong in [&b"\x01\x01"[..], b"\x07\x01\x00\x00", b"\x01\x01\x09\x00key"] {
            assert!(
                Request::decode(Bytes::copy_from_slice(wrong)).is_err(),
                "{wrong:?}"
            );
        }
    }
}
