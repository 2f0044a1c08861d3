//! Commands on their way through the log: a request in its envelope, and the batch of envelopes that is one log entry.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use znode_store::Request;

use crate::codec::{BadBytes, decode};
use crate::ids::NodeId;
use crate::versions::COMMANDS_VERSION;

/// Process that proposed a command. A restarted node is another origin, so that it does not take the answers of its former process for
/// its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// Node of the process.
    pub node: NodeId,
    /// Random number of the process.
    pub boot: u64,
}

/// Request of a client, with the call that waits for its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// Version that added this kind of command, or by whose rules members apply it. It is the first byte, so that an older program can
    /// report it. See `crate::command_versions`.
    pub version: u8,
    /// Process in which the call waits.
    pub origin: Origin,
    /// Number of the call within that process.
    pub call: u64,
    /// Request.
    pub request: Request,
}

impl Envelope {
    /// Returns an envelope of the version that added the request's kind of command.
    pub fn new(origin: Origin, call: u64, request: Request) -> Self {
        Self {
            version: crate::command_versions::since(&request.command),
            origin,
            call,
            request,
        }
    }

    /// Returns an envelope by the newest rules that all members are `known` to apply.
    pub fn by_rules(origin: Origin, call: u64, request: Request, known: impl FnOnce() -> u8) -> Self {
        Self {
            version: crate::command_versions::of_envelope(&request, known),
            origin,
            call,
            request,
        }
    }

    /// Decodes an envelope. An envelope of a newer version is an error that names both versions.
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

/// Commands of one log entry, each in the bytes that its origin encoded. The leader passes them on undecoded.
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
}
