//! Name of a node in certificates: `lockgate://CLUSTER/node/ID`. Each name has exactly one spelling, so names
//! with different spellings are different.

use std::fmt;
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Prefix of all names of this form.
pub(crate) const SCHEME: &str = "lockgate://";

/// Bytes that are escaped in the name of a cluster: all but RFC 3986's unreserved characters.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

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
        let cluster = utf8_percent_encode(&self.cluster, ESCAPED);
        write!(f, "{SCHEME}{cluster}/node/{}", self.node)
    }
}

impl FromStr for PeerName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let rest = text.strip_prefix(SCHEME).ok_or(NameError)?;
        let (cluster, node) = rest.split_once("/node/").ok_or(NameError)?;
        let name = Self {
            cluster: percent_decode_str(cluster)
                .decode_utf8()
                .map_err(|_| NameError)?
                .into_owned(),
            node: node.parse().map_err(|_| NameError)?,
        };
        // Rejects other spellings: leading zeros, a plus sign, lower-case hexadecimal digits in an escape,
        // unnecessary escapes, a percent sign without digits.
        match name.node > 0 && !name.cluster.is_empty() && name.to_string() == text {
            true => Ok(name),
            false => Err(NameError),
        }
    }
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
            "lockgate://%/node/3",
            "lockgate://%4/node/3",
            "lockgate://%zz/node/3",
            "LOCKGATE://local/node/3",
            "https://local/node/3",
            " lockgate://local/node/3",
        ] {
            assert_eq!(text.parse::<PeerName>(), Err(NameError), "{text}");
        }
    }
}
