//! The protocol, tested from outside: bytes in, values out, and back.
//!
//! `recordings` reads what real clients and a real server have said; `golden` has bytes written down by hand from ZooKeeper's record
//! definitions, for what no recording has; `round_trip` takes any values to bytes and back, and cuts the bytes off;
//! `refused` is what must not be taken, and what must. To take the present reading of the recordings as the expected one,
//! run with UPDATE_GOLDENFILES=1 and review the difference.

mod golden;
mod recordings;
mod refused;
mod round_trip;
mod values;

use bytes::{Bytes, BytesMut};
use zk_wire::Writer;

/// What somebody writes.
pub fn written(write: impl FnOnce(&mut Writer<'_>)) -> Bytes {
    let mut bytes = BytesMut::new();
    write(&mut Writer::new(&mut bytes));
    bytes.freeze()
}

/// Bytes in hexadecimal, with any spaces.
pub fn unhex(text: &str) -> Bytes {
    let digits: Vec<char> = text.chars().filter(|digit| !digit.is_whitespace()).collect();
    let byte = |pair: &[char]| {
        let text: String = pair.iter().collect();
        u8::from_str_radix(&text, 16).expect("it is hexadecimal")
    };
    digits.chunks(2).map(byte).collect()
}
