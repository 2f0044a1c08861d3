//! Numbers of a fixed width as text, for the names of sequential znodes and of contenders. The formatter of the standard library writes
//! padding one character at a time, which cost a tenth of an acquire.

use alloc::string::String;

/// Number of digits that the tree appends to the name of a sequential node.
pub(crate) const SEQUENCE_DIGITS: usize = 10;

/// Hexadecimal digits of 128 bits.
pub(crate) const GUID_DIGITS: usize = 32;

const ZEROS: &str = "0000000000";

const _: () = assert!(ZEROS.len() == SEQUENCE_DIGITS);

/// Appends a sequence number: ten digits, with leading zeros.
pub(crate) fn push_sequence(text: &mut String, number: u64) {
    debug_assert!(
        number <= crate::model::digits::MAX_SEQUENCE,
        "{number} has too many digits"
    );
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(number);
    text.push_str(ZEROS.get(digits.len()..).unwrap_or_default());
    text.push_str(digits);
}

/// Appends a random number: 32 hexadecimal digits, with leading zeros.
pub(crate) fn push_guid(text: &mut String, guid: u128) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut digits = [b'0'; GUID_DIGITS];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(guid.to_be_bytes()) {
        pair[0] = HEX[usize::from(byte >> 4)];
        pair[1] = HEX[usize::from(byte & 15)];
    }
    text.push_str(core::str::from_utf8(&digits).expect("digits are ASCII"));
}

/// Returns the sequence number in the name of a znode. Returns `None` if it does not end in ten digits; below a lock it is then no contender.
pub(crate) fn sequence_number(name: &str) -> Option<u64> {
    // Compared as bytes, because the last ten may begin in the middle of a character.
    let digits = name.as_bytes().last_chunk::<SEQUENCE_DIGITS>()?;
    let number = |number, digit: &u8| {
        digit
            .is_ascii_digit()
            .then(|| number * 10 + u64::from(digit - b'0'))
    };
    digits.iter().try_fold(0, number)
}

/// Maximum sequence number, the last one with ten digits. Clients compare numbers as text, so an eleventh digit
/// would put the newest contender before the oldest.
pub const MAX_SEQUENCE: u64 = 9_999_999_999;

#[cfg(test)]
mod tests {
    use alloc::format;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_are_what_the_formatter_writes(
            number in 0..=crate::model::digits::MAX_SEQUENCE,
            guid: u128,
            small: u8,
        ) {
            for (number, guid) in [(number, guid), (small.into(), small.into())] {
                let mut text = String::from("n-");
                push_guid(&mut text, guid);
                push_sequence(&mut text, number);
                prop_assert_eq!(text, format!("n-{guid:032x}{number:010}"));
            }
        }
    }
}
