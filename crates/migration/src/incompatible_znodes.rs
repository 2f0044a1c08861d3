//! Znodes of the source that exceed the target's limits. The module decides which they are and why; it reads
//! and writes nothing. An incompatible znode is not copied, nor are its descendants, and the switch is
//! refused until that is resolved.

use std::collections::BTreeMap;

use serde::Deserialize;
use znode_store::{BadPath, MAX_ACL_BYTES, SHORT_PATH_BYTES, SHORT_PATH_DEPTH, ZPath};

use super::facts::Facts;
use super::scope::{is_within, parent};

/// Limits of a znode at the target, as the target reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Limits {
    data_bytes: u32,
    children: u32,
    path_bytes: usize,
    path_depth: usize,
    acl_bytes: usize,
}

/// Limits of an older cluster, which does not report them.
impl Default for Limits {
    fn default() -> Self {
        let znode_store::Limits {
            data_bytes, children, ..
        } = znode_store::Limits::default();
        Self {
            data_bytes,
            children,
            path_bytes: SHORT_PATH_BYTES,
            path_depth: SHORT_PATH_DEPTH,
            acl_bytes: MAX_ACL_BYTES,
        }
    }
}

impl Limits {
    /// Returns why a znode exceeds the target's limits; `None` if it does not.
    pub fn incompatibility(&self, path: &str, facts: &Facts, children: i32) -> Option<String> {
        let beyond = |what: &str, has: usize, limit: usize| {
            (has > limit).then(|| format!("{what} {has}, above the target's limit of {limit}"))
        };
        let acl_bytes = facts.acl.iter().map(|entry| entry.scheme.len() + entry.id.len());
        let parts = path.split('/').filter(|part| !part.is_empty()).count();
        beyond("path length in bytes:", path.len(), self.path_bytes)
            .or_else(|| beyond("path depth:", parts, self.path_depth))
            .or_else(|| match ZPath::parse(path) {
                // The target's own limits on paths were checked above.
                Ok(_) | Err(BadPath::TooLong { .. } | BadPath::TooDeep { .. }) => None,
                Err(error) => Some(error.to_string()),
            })
            .or_else(|| {
                beyond(
                    "bytes of data:",
                    facts.data_length as usize,
                    self.data_bytes as usize,
                )
            })
            .or_else(|| beyond("access control list, in bytes:", acl_bytes.sum(), self.acl_bytes))
            .or_else(|| {
                facts
                    .acl
                    .is_empty()
                    .then(|| "the access control list is empty".to_owned())
            })
            .or_else(|| beyond("children:", children.max(0) as usize, self.children as usize))
    }
}

/// Incompatible znodes, with the reasons.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IncompatibleZnodes(BTreeMap<String, String>);

impl IncompatibleZnodes {
    /// Adds a znode. Returns whether it or its reason is new.
    pub fn insert(&mut self, path: &str, why: &str) -> bool {
        self.0.insert(path.to_owned(), why.to_owned()).as_deref() != Some(why)
    }

    /// Removes a znode that is compatible now. Returns whether it was incompatible.
    pub fn remove(&mut self, path: &str) -> bool {
        self.0.remove(path).is_some()
    }

    /// Removes a deleted znode and its descendants.
    pub fn remove_within(&mut self, top: &str) {
        if !self.0.is_empty() {
            self.0.retain(|path, _| !is_within(path, top));
        }
    }

    /// Returns whether a znode or one of its ancestors is incompatible.
    pub fn cover(&self, path: &str) -> bool {
        // Iterate over the smaller set: the incompatible znodes, or the ancestors of this one.
        match path.split('/').nth(self.0.len()) {
            Some(_) => self.0.keys().any(|top| is_within(path, top)),
            None => std::iter::successors(Some(path), |path| parent(path)).any(|at| self.0.contains_key(at)),
        }
    }

    /// Iterates over all incompatible znodes, sorted by path.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &String)> {
        self.0.iter()
    }

    /// Returns the number of incompatible znodes.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::{AclEntry, Kind};
    use super::*;

    fn facts(data_length: u32, id: &str) -> Facts {
        let entry = AclEntry {
            perms: "r".to_owned(),
            scheme: "digest".to_owned(),
            id: id.to_owned(),
        };
        Facts {
            kind: Kind::Persistent,
            data_sha256: Some([0; 32]),
            data_length,
            acl: vec![entry].into(),
            version: 0,
            aversion: 0,
            created_ms: 0,
            modified_ms: 0,
            creations: 0,
        }
    }

    #[test]
    fn znodes_above_a_limit_are_found_and_those_at_the_limit_fit() {
        let limits = Limits {
            data_bytes: 10,
            children: 3,
            path_bytes: 8,
            path_depth: 2,
            acl_bytes: 9,
        };
        let reason = |path: &str, data: u32, id: &str, children: i32| {
            limits
                .incompatibility(path, &facts(data, id), children)
                .unwrap_or_default()
        };
        assert_eq!(reason("/234567/", 10, "u:p", 3), "a path does not end with '/'");
        for fits in ["/", "/2345678", "/23/5678"] {
            assert_eq!(reason(fits, 10, "u:p", 3), "", "{fits}");
        }
        for (found, begins) in [
            (
                reason("/23456789", 0, "u:p", 0),
                "path length in bytes: 9, above the target's limit of 8",
            ),
            (
                reason("/2/4/6", 0, "u:p", 0),
                "path depth: 3, above the target's limit of 2",
            ),
            (
                reason("/a", 11, "u:p", 0),
                "bytes of data: 11, above the target's limit of 10",
            ),
            (
                reason("/a", 0, "u:pw", 0),
                "access control list, in bytes: 10, above the target's limit of 9",
            ),
            (
                reason("/a", 0, "u:p", 4),
                "children: 4, above the target's limit of 3",
            ),
        ] {
            assert!(
                found.starts_with(begins),
                "{found:?} does not begin with {begins:?}"
            );
        }
        assert_eq!(
            Limits::default().incompatibility(&"/a".repeat(32), &facts(0, "u:p"), 0),
            None
        );
        assert!(
            Limits::default()
                .incompatibility(&"/a".repeat(33), &facts(0, "u:p"), 0)
                .is_some()
        );
    }

    #[test]
    fn descendants_of_incompatible_znodes_are_covered() {
        let mut znodes = IncompatibleZnodes::default();
        assert!(!znodes.cover("/a"));
        assert!(znodes.insert("/a/b", "why"));
        assert!(!znodes.insert("/a/b", "why") && znodes.insert("/a/b", "another reason"));
        assert!(znodes.cover("/a/b") && znodes.cover("/a/b/c/d"));
        assert!(!znodes.cover("/a") && !znodes.cover("/a/bc") && !znodes.cover("/"));
        znodes.insert("/c", "why");
        znodes.remove_within("/a");
        assert!(!znodes.cover("/a/b") && znodes.remove("/c") && !znodes.remove("/c"));
        assert_eq!(znodes.len(), 0);
    }
}
