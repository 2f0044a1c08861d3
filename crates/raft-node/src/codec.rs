//! The one door to the encoding: bincode 2 with serde, its standard configuration. Own structures only;
//! what openraft calls things never reaches a wire or a disk.
//!
//! bincode accepts bytes that it did not need. Here they are an error: a longer message is one of another
//! version or a damaged one.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use znode_store::Request;

use crate::ids::NodeId;
use crate::versions::COMMANDS_VERSION;

/// No message or record is larger: the largest is a batch of commands (see `proposer.rs`) or a part of a
/// snapshot, either of which is cut off far below.
pub const MAX_ENCODED_BYTES: usize = 64 * 1024 * 1024;

/// The bytes are not what they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("undecodable bytes: {0}")]
pub struct BadBytes(pub String);

/// bincode makes room for a text as long as it claims to be, before it looks whether so much is there, and is held
/// back only by a limit that is fixed when it is compiled. So short messages, which are most, have a lower one.
const SHORT_BYTES: usize = 64 * 1024;

/// Against its limit bincode counts a number as wide as it can be, and most are written in one byte: it may count
/// so many times more (for a number of 16 bytes) than there is.
const COUNTED_TIMES: usize = 16;

/// Encodes a value. The types that come here have no way to fail.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    bincode::serde::encode_to_vec(value, bincode::config::standard()).expect("our own types always encode")
}

/// Decodes a value that fills `bytes` to the last one.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BadBytes> {
    let length = bytes.len();
    if length <= SHORT_BYTES {
        decode_within::<T, { SHORT_BYTES * COUNTED_TIMES }>(bytes)
    } else if length <= MAX_ENCODED_BYTES {
        decode_within::<T, { MAX_ENCODED_BYTES * COUNTED_TIMES }>(bytes)
    } else {
        Err(BadBytes(format!("{length} bytes are more than a message has")))
    }
}

fn decode_within<T: DeserializeOwned, const LIMIT: usize>(bytes: &[u8]) -> Result<T, BadBytes> {
    let config = bincode::config::standard().with_limit::<LIMIT>();
    // Borrowed, though nothing that comes out of it is: texts and data are seen where they lie, and copied once.
    match bincode::serde::borrow_decode_from_slice(bytes, config) {
        Ok((value, used)) if used == bytes.len() => Ok(value),
        Ok((_, used)) => Err(BadBytes(format!("{} bytes too many", bytes.len() - used))),
        Err(error) => Err(BadBytes(error.to_string())),
    }
}

/// Decodes the value that `bytes` begin with, whatever follows it.
pub fn decode_start<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BadBytes> {
    let start = &bytes[..bytes.len().min(SHORT_BYTES)];
    let config = bincode::config::standard().with_limit::<{ SHORT_BYTES * COUNTED_TIMES }>();
    match bincode::serde::decode_from_slice(start, config) {
        Ok((value, _)) => Ok(value),
        Err(error) => Err(BadBytes(error.to_string())),
    }
}

/// Who proposed a command: one run of one node. A restarted node does not take the answers of its former
/// life for its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// Which node.
    pub node: NodeId,
    /// A random number drawn at its start.
    pub boot: u64,
}

/// A client's request with the call that waits for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// The version in which this kind of command came, or whose rules it is applied by: the first byte, so that a program which does not
    /// know it can say so. See `crate::versions`.
    pub version: u8,
    /// Where a caller waits.
    pub origin: Origin,
    /// Which call of that origin.
    pub call: u64,
    /// What it asks.
    pub request: Request,
}

impl Envelope {
    /// Around a request.
    pub fn new(origin: Origin, call: u64, request: Request) -> Self {
        Self {
            version: crate::versions::since(&request.command),
            origin,
            call,
            request,
        }
    }

    /// The same, applied by the newest rules that all members are `known` to apply.
    pub fn by_rules(origin: Origin, call: u64, request: Request, known: impl FnOnce() -> u8) -> Self {
        Self {
            version: crate::versions::of_envelope(&request, known),
            origin,
            call,
            request,
        }
    }

    /// Decodes an envelope, unless it is for a newer program.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadBytes> {
        match bytes.first() {
            Some(version) if *version > COMMANDS_VERSION => Err(BadBytes(format!(
                "a command of version {version}, and this program knows those up to {COMMANDS_VERSION}: a newer one is \
                 at work in this cluster, which this node needs, too"
            ))),
            _ => decode(bytes),
        }
    }
}

/// Commands that share one log entry, each still in the bytes that its origin encoded: whoever passes them
/// on need not look inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandBatch {
    /// The proposer's wall clock, in milliseconds since 1970.
    pub time_ms: u64,
    /// Encoded [`Envelope`]s in the order in which they are applied.
    pub envelopes: Vec<Bytes>,
}

impl CommandBatch {
    /// The batch as bytes: the time, the number of envelopes, then each with its length before it
    /// (little endian).
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

    /// Takes a batch apart again, without copying.
    pub fn decode(mut bytes: Bytes) -> Result<Self, BadBytes> {
        let short = || BadBytes("a batch of commands is cut off".into());
        let time_ms = bytes.try_get_u64_le().map_err(|_| short())?;
        let count = bytes.try_get_u32_le().map_err(|_| short())?;
        // The count is a stranger's claim: room is made as the envelopes really come.
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
    fn a_batch_comes_back_as_it_was() {
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
    fn a_batch_that_is_cut_off_or_too_long_is_refused() {
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

    #[test]
    fn bytes_that_are_left_over_are_refused() {
        let mut bytes = encode(&(1u64, "text".to_owned()));
        assert_eq!(decode::<(u64, String)>(&bytes), Ok((1, "text".to_owned())));
        bytes.push(0);
        assert!(decode::<(u64, String)>(&bytes).is_err());
    }

    #[test]
    fn small_numbers_count_for_what_they_take() {
        // Three bytes for how many there are, and one for each.
        for count in [
            SHORT_BYTES - 3,
            SHORT_BYTES,
            MAX_ENCODED_BYTES / COUNTED_TIMES + 1,
        ] {
            let numbers = vec![1_u128; count];
            assert_eq!(decode(&encode(&numbers)), Ok(numbers), "{count}");
        }
    }

    #[test]
    fn a_text_that_claims_to_be_longer_than_it_is_is_refused() {
        for claimed in [1, SHORT_BYTES, MAX_ENCODED_BYTES, usize::MAX] {
            assert!(decode::<String>(&encode(&claimed)).is_err(), "{claimed}");
        }
    }
}
