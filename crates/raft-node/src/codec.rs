//! Encoding of messages and records: bincode 2 with serde, in its standard configuration. Only this project's
//! structures are encoded; openraft's types never reach a wire or a disk.
//!
//! bincode accepts trailing bytes. Here they are an error: a longer message is of another version, or
//! damaged.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Maximum size of a message or record. The largest are batches of commands (see `batcher/`) and parts of
/// snapshots, both with far lower limits of their own.
pub const MAX_ENCODED_BYTES: usize = 64 * 1024 * 1024;

/// Bytes that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("undecodable bytes: {0}")]
pub struct BadBytes(pub String);

/// Maximum size of short messages, which have a lower decoding limit and are most messages. bincode allocates the
/// claimed length of a text before it checks whether that many bytes follow, bounded only by a limit that is fixed at
/// compile time.
const SHORT_BYTES: usize = 64 * 1024;

/// Factor by which bincode may overcount: it counts each number against its limit with the maximum width, while most
/// numbers are written in one byte (a factor of 16 for a number of 16 bytes).
const COUNTED_TIMES: usize = 16;

/// Encodes a value. The types used here cannot fail.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    bincode::serde::encode_to_vec(value, bincode::config::standard()).expect("our own types always encode")
}

/// Decodes a value that must use all of `bytes`.
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
    // Borrowed, although the result borrows nothing: texts and data are read in place and copied once.
    match bincode::serde::borrow_decode_from_slice(bytes, config) {
        Ok((value, used)) if used == bytes.len() => Ok(value),
        Ok((_, used)) => Err(BadBytes(format!("{} bytes too many", bytes.len() - used))),
        Err(error) => Err(BadBytes(error.to_string())),
    }
}

/// Decodes the value at the beginning of `bytes` and ignores the rest.
pub fn decode_start<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BadBytes> {
    let start = &bytes[..bytes.len().min(SHORT_BYTES)];
    let config = bincode::config::standard().with_limit::<{ SHORT_BYTES * COUNTED_TIMES }>();
    match bincode::serde::decode_from_slice(start, config) {
        Ok((value, _)) => Ok(value),
        Err(error) => Err(BadBytes(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailing_bytes_are_rejected() {
        let mut bytes = encode(&(1u64, "text".to_owned()));
        assert_eq!(decode::<(u64, String)>(&bytes), Ok((1, "text".to_owned())));
        bytes.push(0);
        assert!(decode::<(u64, String)>(&bytes).is_err());
    }

    #[test]
    fn small_numbers_count_with_their_encoded_size() {
        // Three bytes for the count, and one for each number.
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
    fn text_shorter_than_its_claimed_length_is_rejected() {
        for claimed in [1, SHORT_BYTES, MAX_ENCODED_BYTES, usize::MAX] {
            assert!(decode::<String>(&encode(&claimed)).is_err(), "{claimed}");
        }
    }
}
