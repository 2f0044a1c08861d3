//! Name of a node in certificates: `lockgate://CLUSTER/node/ID`. Each name has exactly one spelling, so names
//! with different spellings are different.

use std::fmt;
use std::str::FromStr;

/// Prefix of all names of this form.
pub(crate) const SCHEME: &str = "lockgate://";

/// Name of a node in certificates.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerName {
    /// Cluster name of the node's configuration.
    pub cluster: String,
    /// ID of the node.
    pub node: u64,
}

/// Error for a text that is not the name of a node.
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
        // Rejects other spellings: leading zeros, a plus sign, lower-case hexadecimal digits in an escape,
        // unnecessary escapes.
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
    fn name_survives_formatting_and_parsing() {
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
    fn other_spellings_of_a_name_are_rejected() {
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
