//! Roles: names for lists of grants.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::model::access::right::{Right, Rights};
use crate::model::path::{LOCK_ROOT, LockName, ZPath};

/// Maximum length of the name of a role in bytes.
pub const MAX_ROLE_NAME_BYTES: usize = 64;

/// Maximum number of grants of one role. Each is compared with each path that its callers request.
pub const MAX_GRANTS_PER_ROLE: usize = 64;

/// Maximum size of the paths of one role in bytes. Roles are in memory, in snapshots and in commands.
pub const MAX_ROLE_BYTES: usize = 16 * 1024;

/// Rights at a path and at all below it. (A lock's path is that of its znode, so a grant for all locks whose names begin
/// with `orders/` is one at `/locks/orders`.)
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathGrant {
    /// Path. It is compared by whole components: `/a/b` covers `/a/b/c`, but not `/a/bc`.
    pub prefix: ZPath,
    /// The rights.
    pub rights: Rights,
}

impl PathGrant {
    /// Returns rights at a lock, and at locks whose names begin with its name and a slash.
    pub fn of_locks(lock: &LockName, rights: Rights) -> Self {
        Self {
            prefix: lock.znode().clone(),
            rights,
        }
    }

    /// Returns rights at all locks.
    pub fn of_all_locks(rights: Rights) -> Self {
        Self {
            prefix: ZPath::from_checked(LOCK_ROOT.into()),
            rights,
        }
    }

    /// Returns whether the grant contains a right at a path.
    pub fn allows(&self, right: Right, path: &ZPath) -> bool {
        self.rights.contains(right) && is_within(path, &self.prefix)
    }
}

/// Returns whether `path` is `prefix`, or below it.
pub(crate) fn is_within(path: &ZPath, prefix: &ZPath) -> bool {
    let rest = path.as_str().strip_prefix(prefix.as_str());
    prefix.is_root() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl fmt::Display for PathGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.rights, self.prefix)
    }
}

/// The name of a role: letters of ASCII, digits, `-`, `_` and `.`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RoleName(Arc<str>);

/// Error for a text that is no name of a role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the name of a role has 1 to {MAX_ROLE_NAME_BYTES} letters, digits, '-', '_' and '.'")]
pub struct BadRoleName;

impl RoleName {
    /// Checks a text and returns it as the name of a role.
    pub fn parse(text: &str) -> Result<Self, BadRoleName> {
        let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        match text.len() {
            1..=MAX_ROLE_NAME_BYTES if text.bytes().all(is_legal) => Ok(Self(text.into())),
            _ => Err(BadRoleName),
        }
    }

    /// Returns the role that has every right everywhere. It cannot be changed.
    pub fn admin() -> Self {
        Self("admin".into())
    }

    /// Returns the role of all callers, with or without a proven identity. It does not exist at first, and then callers without an identity
    /// are rejected.
    pub fn anonymous() -> Self {
        Self("anonymous".into())
    }

    pub(crate) fn is_admin(&self) -> bool {
        &*self.0 == "admin"
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RoleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for RoleName {
    type Error = BadRoleName;

    fn try_from(text: String) -> Result<Self, BadRoleName> {
        Self::parse(&text)
    }
}

impl From<RoleName> for String {
    fn from(name: RoleName) -> String {
        name.as_str().into()
    }
}

/// View of a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleView {
    /// Its name.
    pub role: RoleName,
    /// The grants.
    pub grants: Vec<PathGrant>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_counts_in_whole_components() {
        let path = |text| ZPath::parse(text).expect("it is a path");
        for (at, prefix, within) in [
            ("/a/b", "/a/b", true),
            ("/a/b/c", "/a/b", true),
            ("/a/bc", "/a/b", false),
            ("/a", "/a/b", false),
            ("/", "/a", false),
            ("/", "/", true),
            ("/a", "/", true),
        ] {
            assert_eq!(
                is_within(&path(at), &path(prefix)),
                within,
                "{at} within {prefix}"
            );
        }
    }

    #[test]
    fn names_of_roles() {
        for good in ["a", "batch-jobs", "team_1.x"] {
            assert_eq!(RoleName::parse(good).map(String::from), Ok(good.into()));
        }
        for bad in [
            "",
            "two words",
            "é",
            "line\nbreak",
            &"x".repeat(MAX_ROLE_NAME_BYTES + 1),
        ] {
            assert_eq!(RoleName::parse(bad), Err(BadRoleName), "{bad:?}");
        }
    }
}
