//! Tests of the protocol through its public API: decoding and encoding.
//!
//! `recordings` decodes conversations of real clients with a real server. `golden` has bytes written by hand
//! from ZooKeeper's record definitions, for records that no recording contains. `round_trip` encodes and
//! decodes arbitrary values, and truncates the bytes. `refused` has bytes that must be rejected, and others
//! that must be accepted. To update the golden files of the recordings, run with UPDATE_GOLDENFILES=1 and
//! review the difference.

mod golden;
mod recordings;
mod refused;
mod round_trip;
mod values;

use bytes::{Bytes, BytesMut};
use zk_wire::Writer;

/// Returns the bytes that `write` appends.
pub fn written(write: impl FnOnce(&mut Writer<'_>)) -> Bytes {
    let mut bytes = BytesMut::new();
    write(&mut Writer::new(&mut bytes));
    bytes.freeze()
}

/// Parses hexadecimal digits, with any white space.
pub fn unhex(text: &str) -> Bytes {
    let digits: Vec<char> = text.chars().filter(|digit| !digit.is_whitespace()).collect();
    let byte = |pair: &[char]| {
        let text: String = pair.iter().collect();
        u8::from_str_radix(&text, 16).expect("the digits are hexadecimal")
    };
    digits.chunks(2).map(byte).collect()
}
