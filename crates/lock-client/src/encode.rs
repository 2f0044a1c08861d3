//! Encodings of the HTTP API: names in addresses, durations in documents.

use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Characters to encode in one segment: all but RFC 3986's unreserved characters.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Characters to encode in a path: the same without the slash.
const PATH: &AsciiSet = &SEGMENT.remove(b'/');

/// Encodes a name in one segment, or a value in a query. Slashes of lock names are encoded too, so that a last part such as
/// `release` is not mistaken for a verb.
pub(crate) fn segment(name: &str) -> String {
    utf8_percent_encode(name, SEGMENT).to_string()
}

/// Encodes the name of a lock at the end of an address.
pub(crate) fn lock(name: &str) -> String {
    match name {
        "graph" => "%67raph".to_owned(),
        _ => segment(name),
    }
}

/// Encodes the path of a znode.
pub(crate) fn path(path: &str) -> String {
    utf8_percent_encode(path, PATH).to_string()
}

/// Returns a duration in whole milliseconds.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_byte_by_byte() {
        assert_eq!(segment("orders/4 2?ä%"), "orders%2F4%202%3F%C3%A4%25");
        assert_eq!(path("/orders/4 2"), "/orders/4%202");
        assert_eq!(
            (lock("a/graph"), lock("graph")),
            ("a%2Fgraph".into(), "%67raph".into())
        );
    }
}
