//! The one door to the encoding: bincode 2 with serde, its standard configuration. Own structures only;
//! what openraft calls things never reaches a wire or a disk.
//!
//! bincode accepts bytes that it did not need. Here they are an error: a longer message is one of another
//! version or a damaged one.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// No message or record is larger: the largest is a batch of commands (see `batcher.rs`) or a part of a
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

#[cfg(test)]
mod tests {
    use super::*;

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
