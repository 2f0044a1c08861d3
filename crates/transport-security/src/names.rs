//! What a node is called in certificates: `lockgate://CLUSTER/node/ID`. There is one way to write each name, so two
//! that look different are different.

use std::fmt;
use std::str::FromStr;

/// How every name of ours begins.
pub(crate) const SCHEME: &str = "lockgate://";

/// A node of a cluster, as certificates name it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerName {
    /// The cluster, as it is called in its nodes' configuration.
    pub cluster: String,
    /// The node's id.
    pub node: u64,
}

/// A text that is no name of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not of the form lockgate://CLUSTER/node/ID")]
pub struct NameError;

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEME)?;
        for byte in self.cluster.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    write!(f, "{}", char::from(byte))?;
                }
                _ => write!(f, "%{byte:02X}")?,
            }
        }
        write!(f, "/node/{}", self.node)
    }
}

impl FromStr for PeerName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let rest = text.strip_prefix(SCHEME).ok_or(NameError)?;
        let (cluster, node) = rest.split_once("/node/").ok_or(NameError)?;
        let name = Self {
            cluster: decoded(cluster)
                .filter(|name| !name.is_empty())
                .ok_or(NameError)?,
            node: node.parse().map_err(|_| NameError)?,
        };
        // Leading zeros, a plus, small letters in an escape, an escape that is not needed: not the one way.
        match name.node > 0 && name.to_string() == text {
            true => Ok(name),
            false => Err(NameError),
        }
    }
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'%' => {
                let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &rest[2..];
            }
            other => bytes.push(*other),
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for (cluster, node, text) in [
            ("local", 3, "lockgate://local/node/3"),
            ("lock gäte/1", 1, "lockgate://lock%20g%C3%A4te%2F1/node/1"),
            ("a", u64::MAX, "lockgate://a/node/18446744073709551615"),
        ] {
            let name = PeerName {
                cluster: cluster.to_owned(),
                node,
            };
            assert_eq!(name.to_string(), text);
            assert_eq!(text.parse(), Ok(name));
        }
    }

    #[test]
    fn what_is_written_in_another_way_is_no_name() {
        for text in [
            "",
            "lockgate://",
            "lockgate://local",
            "lockgate://local/node/",
            "lockgate://local/node/0",
            "lockgate://local/node/03",
            "lockgate://local/node/+3",
            "lockgate://local/node/3/",
            "lockgate://local/node/3/node/4",
            "lockgate://local/client/3",
            "lockgate:///node/3",
            "lockgate://lo%63al/node/3",
            "lockgate://g%c3%a4te/node/3",
            "lockgate://%ff/node/3",
            "lockgate://%+1/node/3",
            "LOCKGATE://local/node/3",
            "https://local/node/3",
            " lockgate://local/node/3",
        ] {
            assert_eq!(text.parse::<PeerName>(), Err(NameError), "{text}");
        }
    }
}
