//! Errors of the start of a node, in the words of a program that embeds it: methods and fields, not settings of a file.

use std::io;

use transport_security::TlsError;

/// Error of [`Builder::start`](crate::Builder::start).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The settings are not usable. They are named as the fields of [`NodeConfig`](lock_node::NodeConfig), which methods of
    /// [`Builder`](crate::Builder) set.
    #[error("the configuration is not usable: {0}")]
    Settings(String),
    /// The node cannot start.
    #[error(transparent)]
    Node(lock_node::StartError),
    /// The address for HTTP cannot be bound.
    #[error("cannot listen for HTTP at {address}: {source}")]
    Http {
        /// Address.
        address: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The certificates cannot be used.
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
    /// Other machines could reach the node without TLS.
    #[error(
        "this node would listen for {what} without TLS at {address}, which other machines can reach: give it certificates \
         (`Builder::tls`), let it listen on 127.0.0.1, or trust every machine that can reach it (`Builder::insecure`)"
    )]
    Exposed {
        /// Callers at the address.
        what: &'static str,
        /// Address.
        address: String,
    },
    /// The address for administration cannot be bound.
    #[error("cannot listen for administration at {address}: {source}")]
    Administration {
        /// Address.
        address: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The address for clients of Redis cannot be bound.
    #[error("cannot listen for clients of Redis at {address}: {source}")]
    Redis {
        /// Address.
        address: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The address for clients of ZooKeeper cannot be bound.
    #[error("cannot listen for clients of ZooKeeper at {address}: {source}")]
    ZooKeeper {
        /// Address.
        address: String,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// Names of settings in the configuration file, which the checks of `lock_node` use, and in a program. The first match counts.
const FIELDS: [(&str, &str); 6] = [
    ("raft.", "timing."),
    ("load.session_openings_at_once", "admission.openings.burst"),
    ("load.session_openings_", "admission.openings."),
    ("load.", "admission."),
    ("history.", "history.bounds."),
    // Times are a `Duration` there.
    ("_ms", ""),
];

impl From<lock_node::StartError> for StartError {
    fn from(error: lock_node::StartError) -> Self {
        match error {
            lock_node::StartError::Config(text) => {
                let names = FIELDS.iter();
                Self::Settings(names.fold(text, |text, (in_file, in_program)| {
                    text.replace(in_file, in_program)
                }))
            }
            other => Self::Node(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use lock_node::NodeConfig;

    use super::*;

    #[test]
    fn settings_are_named_as_fields_of_the_program() {
        let mut config = NodeConfig::new(1, "orders", BTreeMap::new(), "data");
        config.raft.timing.heartbeat = Duration::from_millis(200);
        config.raft.timing.election_min = Duration::from_millis(300);
        config.admission.openings.burst = 0;
        let error = StartError::from(config.validate().unwrap_err()).to_string();
        for part in [
            "timing.election_min must be at least three times timing.heartbeat (200), and is 300",
            "admission.openings.burst must not be 0",
        ] {
            assert!(error.contains(part), "{error}");
        }
        for in_file in ["raft.", "load.", "_ms"] {
            assert!(!error.contains(in_file), "{error}");
        }
    }
}
