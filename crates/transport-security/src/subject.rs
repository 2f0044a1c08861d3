//! Subject of a certificate as text, in the form of RFC 2253 as Java writes it (`X500Principal.getName`).
//! ZooKeeper's access control lists contain this form for the scheme `x509`.

use std::fmt::Write as _;

use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// Attributes for which RFC 2253 defines keywords. Other attributes are written as object identifiers.
const KEYWORDS: [(&str, &str); 9] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "STREET"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
];

/// Formats a name from its last part to its first. The result is empty for a name without parts.
pub(crate) fn rfc2253(name: &X509Name<'_>) -> String {
    let mut text = String::new();
    let parts: Vec<_> = name.iter_rdn().collect();
    for (at, part) in parts.iter().rev().enumerate() {
        if at > 0 {
            text.push(',');
        }
        for (at, attribute) in part.iter().enumerate() {
            if at > 0 {
                text.push('+');
            }
            write_attribute(&mut text, attribute);
        }
    }
    text
}

fn write_attribute(text: &mut String, attribute: &AttributeTypeAndValue<'_>) {
    let number = attribute.attr_type().to_id_string();
    let word = KEYWORDS
        .iter()
        .find(|(known, _)| *known == number)
        .map(|(_, word)| *word);
    match (word, attribute.as_str()) {
        (Some(word), Ok(value)) => {
            text.push_str(word);
            text.push('=');
            write_escaped(text, value);
        }
        // An attribute without a keyword, or with a value that is not text, is written as the bytes of its
        // encoding.
        _ => {
            text.push_str(&number);
            text.push_str("=#");
            let value = attribute.attr_value();
            let mut encoded = header(value.tag().0, value.header.is_constructed(), value.data.len());
            encoded.extend_from_slice(value.data);
            for byte in encoded {
                write!(text, "{byte:02x}").expect("writing to a String cannot fail");
            }
        }
    }
}

/// DER header of a value.
fn header(tag: u32, constructed: bool, length: usize) -> Vec<u8> {
    // The tags of attribute types are below 31.
    let tag = (tag & 0x1f) as u8 | if constructed { 0x20 } else { 0 };
    let mut bytes = vec![tag];
    if length < 0x80 {
        bytes.push(length as u8);
    } else {
        let length = length.to_be_bytes();
        let zeros = length.iter().take_while(|byte| **byte == 0).count();
        bytes.push(0x80 | (length.len() - zeros) as u8);
        bytes.extend_from_slice(&length[zeros..]);
    }
    bytes
}

fn write_escaped(text: &mut String, value: &str) {
    let last = value.chars().count().saturating_sub(1);
    for (at, character) in value.chars().enumerate() {
        let escaped = match character {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => true,
            '#' => at == 0,
            ' ' => at == 0 || at == last,
            _ => false,
        };
        if escaped {
            text.push('\\');
        }
        text.push(character);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_are_escaped() {
        for (value, written) in [
            ("alice", "alice"),
            ("Smith, Jane", "Smith\\, Jane"),
            ("a+b=c;d", "a\\+b=c\\;d"),
            ("#1", "\\#1"),
            ("1#", "1#"),
            (" x ", "\\ x\\ "),
            (" ", "\\ "),
            ("\\\"<>", "\\\\\\\"\\<\\>"),
            ("", ""),
        ] {
            let mut text = String::new();
            write_escaped(&mut text, value);
            assert_eq!(text, written);
        }
    }
}
