//! Commands of one log entry. Replication forwards them without decoding.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::codec::BadBytes;

/// Commands of one log entry, each in the bytes that its origin encoded. The leader does not decode them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandBatch {
    /// Wall clock of the proposing leader, in milliseconds since 1970.
    pub time_ms: u64,
    /// Encoded commands in the order in which they are applied. The first byte of each is its version.
    pub envelopes: Vec<Bytes>,
}

impl CommandBatch {
    /// Encodes the batch: the time, the number of envelopes, then each envelope after its length (little
    /// endian).
    pub fn encode(&self) -> Bytes {
        let size = self
            .envelopes
            .iter()
            .map(|envelope| 4 + envelope.len())
            .sum::<usize>();
        let mut bytes = BytesMut::with_capacity(12 + size);
        bytes.put_u64_le(self.time_ms);
        bytes.put_u32_le(self.envelopes.len() as u32);
        for envelope in &self.envelopes {
            bytes.put_u32_le(envelope.len() as u32);
            bytes.put_slice(envelope);
        }
        bytes.freeze()
    }

    /// Decodes a batch without copying.
    pub fn decode(mut bytes: Bytes) -> Result<Self, BadBytes> {
        let short = || BadBytes("a batch of commands is cut off".into());
        let time_ms = bytes.try_get_u64_le().map_err(|_| short())?;
        let count = bytes.try_get_u32_le().map_err(|_| short())?;
        // The count is unverified: memory is allocated only as envelopes are found.
        let mut envelopes = Vec::new();
        for _ in 0..count {
            let length = bytes.try_get_u32_le().map_err(|_| short())? as usize;
            if bytes.len() < length {
                return Err(short());
            }
            envelopes.push(bytes.split_to(length));
        }
        match bytes.is_empty() {
            true => Ok(Self { time_ms, envelopes }),
            false => Err(BadBytes("bytes after a batch of commands".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_round_trips() {
        let batch = CommandBatch {
            time_ms: 1_700_000_000_000,
            envelopes: vec![
                Bytes::from_static(b"one"),
                Bytes::new(),
                Bytes::from_static(b"three"),
            ],
        };
        assert_eq!(CommandBatch::decode(batch.encode()), Ok(batch));
    }

    #[test]
    fn truncated_or_overlong_batch_is_rejected() {
        let batch = CommandBatch {
            time_ms: 1,
            envelopes: vec![Bytes::from_static(b"envelope")],
        };
        let bytes = batch.encode();
        for length in 0..bytes.len() {
            assert!(
                CommandBatch::decode(bytes.slice(..length)).is_err(),
                "{length} bytes"
            );
        }
        let mut longer = bytes.to_vec();
        longer.push(0);
        assert!(CommandBatch::decode(longer.into()).is_err());
    }
}
