//! Namespaces: tenants by the first component of a lock's name or of a znode's path, with quotas. The lock `billing/nightly` and the
//! znode `/billing/config` both are in the namespace `billing`.

use alloc::sync::Arc;
use core::borrow::Borrow;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::model::path::{LOCK_ROOT, ZPath, check_component};
use crate::model::text::checked_text;

/// Maximum length of the name of a namespace in bytes. It is a label of metrics and a part of error texts.
pub const MAX_NAMESPACE_BYTES: usize = 128;

/// Maximum number of namespaces with quotas. Each digest visits all.
pub const MAX_NAMESPACES: usize = 10_000;

/// First components of paths that are in no namespace: the parent of all locks, and the cluster's own znodes.
const RESERVED: [&str; 2] = ["locks", "zookeeper"];

/// Name of a namespace: one component of a path, except for `locks` and `zookeeper`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceName(Arc<str>);

/// Error for a text that is no name of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the name of a namespace is one component of a path, of 1 to {MAX_NAMESPACE_BYTES} bytes, and neither 'locks' nor 'zookeeper'"
)]
pub struct BadNamespace;

impl NamespaceName {
    /// Checks a text and returns it as the name of a namespace.
    pub fn parse(text: &str) -> Result<Self, BadNamespace> {
        let is_component = check_component(text).is_ok() && !text.contains('/');
        match is_component && text.len() <= MAX_NAMESPACE_BYTES && !RESERVED.contains(&text) {
            true => Ok(Self(text.into())),
            false => Err(BadNamespace),
        }
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the top of the namespace's znodes.
    pub(crate) fn znodes(&self) -> ZPath {
        ZPath::from_checked(alloc::format!("/{self}"))
    }

    /// Returns the top of the namespace's locks.
    pub(crate) fn locks(&self) -> ZPath {
        ZPath::from_checked(alloc::format!("{LOCK_ROOT}/{self}"))
    }
}

/// Returns the name of the namespace that a path is in. The result is no legal name if the path can be in no namespace with quotas.
pub fn namespace_of(path: &ZPath) -> Option<&str> {
    let mut components = path.components();
    match components.next()? {
        "locks" => components.next(),
        first => Some(first),
    }
}

impl Borrow<str> for NamespaceName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NamespaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NamespaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

checked_text!(NamespaceName);

/// Quotas of a namespace. `None` means no limit. Usage above a new quota stays; only further growth is refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Quotas {
    /// Maximum number of sessions, leases included, with an ephemeral znode or a contender in the namespace.
    pub sessions: Option<u64>,
    /// Maximum number of locks with a holder or a waiter.
    pub locks: Option<u64>,
    /// Maximum number of znodes, those of locks and contenders included.
    pub znodes: Option<u64>,
    /// Maximum number of bytes of data of these znodes.
    pub bytes: Option<u64>,
    /// Maximum rate of requests at each node. The state only stores it; the nodes enforce it.
    pub requests_per_second: Option<u32>,
}

/// Quantity that a quota of a namespace limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NamespaceQuota {
    /// Sessions.
    Sessions,
    /// Locks in use.
    Locks,
    /// Znodes.
    Znodes,
    /// Bytes of data.
    Bytes,
    /// Requests per second. Nodes refuse them, and the state never does.
    RequestsPerSecond,
}

impl NamespaceQuota {
    /// All quotas.
    pub const ALL: [Self; 5] = [
        Self::Sessions,
        Self::Locks,
        Self::Znodes,
        Self::Bytes,
        Self::RequestsPerSecond,
    ];

    /// Returns its word, in error texts and in the API.
    pub fn word(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::Locks => "locks",
            Self::Znodes => "znodes",
            Self::Bytes => "bytes",
            Self::RequestsPerSecond => "requests_per_second",
        }
    }
}

impl Quotas {
    /// Returns one of the quotas.
    pub fn of(&self, quota: NamespaceQuota) -> Option<u64> {
        match quota {
            NamespaceQuota::Sessions => self.sessions,
            NamespaceQuota::Locks => self.locks,
            NamespaceQuota::Znodes => self.znodes,
            NamespaceQuota::Bytes => self.bytes,
            NamespaceQuota::RequestsPerSecond => self.requests_per_second.map(u64::from),
        }
    }
}

impl NamespaceUsage {
    /// Returns the quantity that a quota limits. The rate has no usage.
    pub fn of(&self, quota: NamespaceQuota) -> Option<u64> {
        match quota {
            NamespaceQuota::Sessions => Some(self.sessions),
            NamespaceQuota::Locks => Some(self.locks),
            NamespaceQuota::Znodes => Some(self.znodes),
            NamespaceQuota::Bytes => Some(self.bytes),
            NamespaceQuota::RequestsPerSecond => None,
        }
    }
}

/// Usage of a namespace, or growth of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NamespaceUsage {
    /// Number of sessions, leases included, with an ephemeral znode or a contender in the namespace.
    pub sessions: u64,
    /// Number of locks with a holder or a waiter.
    pub locks: u64,
    /// Number of znodes.
    pub znodes: u64,
    /// Number of bytes of their data.
    pub bytes: u64,
}

/// Namespace with its quotas and its usage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceView {
    /// Name.
    pub namespace: NamespaceName,
    /// Quotas.
    pub quotas: Quotas,
    /// Usage.
    pub usage: NamespaceUsage,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_namespaces() {
        for good in ["billing", "a b", "é", &"x".repeat(MAX_NAMESPACE_BYTES)] {
            assert_eq!(
                NamespaceName::parse(good).as_ref().map(NamespaceName::as_str),
                Ok(good)
            );
        }
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "/",
            "locks",
            "zookeeper",
            "a\n",
            &"x".repeat(MAX_NAMESPACE_BYTES + 1),
        ] {
            assert_eq!(NamespaceName::parse(bad), Err(BadNamespace), "{bad:?}");
        }
    }

    #[test]
    fn namespaces_of_paths() {
        for (path, namespace) in [
            ("/", None),
            ("/locks", None),
            ("/locks/billing", Some("billing")),
            ("/locks/billing/x/y", Some("billing")),
            ("/billing", Some("billing")),
            ("/billing/x", Some("billing")),
            ("/lockstep/x", Some("lockstep")),
        ] {
            assert_eq!(
                namespace_of(&ZPath::parse(path).expect("it is a path")),
                namespace,
                "{path}"
            );
        }
    }
}
