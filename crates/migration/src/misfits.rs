//! Znodes of the source that the target could not have, because they go beyond its limits: which these are, and why. Nothing is
//! read or written here. What does not fit stays behind with all that is below it, and no switch is made before that is mended.

use std::collections::BTreeMap;

use serde::Deserialize;
use znode_store::{BadPath, MAX_ACL_BYTES, SHORT_PATH_BYTES, SHORT_PATH_DEPTH, ZPath};

use super::facts::Facts;
use super::scope::{is_within, parent};

/// What a znode may be at the target, as that says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Limits {
    data_bytes: u32,
    children: u32,
    path_bytes: usize,
    path_depth: usize,
    acl_bytes: usize,
}

/// What a cluster allows that does not say so, being older than that.
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
    /// Why the target could not have a znode; none if it could.
    pub fn misfit(&self, path: &str, facts: &Facts, children: i32) -> Option<String> {
        let beyond = |what: &str, has: usize, limit: usize| {
            (has > limit).then(|| format!("{what} {has}, more than the {limit} that the target allows"))
        };
        let acl_bytes = facts.acl.iter().map(|entry| entry.scheme.len() + entry.id.len());
        let parts = path.split('/').filter(|part| !part.is_empty()).count();
        beyond("bytes of its path:", path.len(), self.path_bytes)
            .or_else(|| beyond("parts of its path:", parts, self.path_depth))
            .or_else(|| match ZPath::parse(path) {
                // The target has said how long one may be.
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
            .or_else(|| beyond("bytes of its list:", acl_bytes.sum(), self.acl_bytes))
            .or_else(|| facts.acl.is_empty().then(|| "its list is empty".to_owned()))
            .or_else(|| beyond("children:", children.max(0) as usize, self.children as usize))
    }
}

/// What does not fit, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Misfits(BTreeMap<String, String>);

impl Misfits {
    /// Notes one; whether that is news.
    pub fn insert(&mut self, path: &str, why: &str) -> bool {
        self.0.insert(path.to_owned(), why.to_owned()).as_deref() != Some(why)
    }

    /// It fits now; whether it did not.
    pub fn remove(&mut self, path: &str) -> bool {
        self.0.remove(path).is_some()
    }

    /// A znode has gone, and all below it.
    pub fn remove_within(&mut self, top: &str) {
        if !self.0.is_empty() {
            self.0.retain(|path, _| !is_within(path, top));
        }
    }

    /// Whether a znode, or one above it, does not fit.
    pub fn cover(&self, path: &str) -> bool {
        // Whichever are fewer: those that do not fit, or the znodes above this one.
        match path.split('/').nth(self.0.len()) {
            Some(_) => self.0.keys().any(|top| is_within(path, top)),
            None => std::iter::successors(Some(path), |path| parent(path)).any(|at| self.0.contains_key(at)),
        }
    }

    /// All of them, by path.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &String)> {
        self.0.iter()
    }

    /// How many.
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
    fn whatever_goes_beyond_a_limit_is_found_and_what_reaches_it_fits() {
        let limits = Limits {
            data_bytes: 10,
            children: 3,
            path_bytes: 8,
            path_depth: 2,
            acl_bytes: 9,
        };
        let misfit = |path: &str, data: u32, id: &str, children: i32| {
            limits
                .misfit(path, &facts(data, id), children)
                .unwrap_or_default()
        };
        assert_eq!(misfit("/234567/", 10, "u:p", 3), "a path does not end with '/'");
        for fits in ["/", "/2345678", "/23/5678"] {
            assert_eq!(misfit(fits, 10, "u:p", 3), "", "{fits}");
        }
        for (found, begins) in [
            (
                misfit("/23456789", 0, "u:p", 0),
                "bytes of its path: 9, more than the 8",
            ),
            (
                misfit("/2/4/6", 0, "u:p", 0),
                "parts of its path: 3, more than the 2",
            ),
            (misfit("/a", 11, "u:p", 0), "bytes of data: 11, more than the 10"),
            (
                misfit("/a", 0, "u:pw", 0),
                "bytes of its list: 10, more than the 9",
            ),
            (misfit("/a", 0, "u:p", 4), "children: 4, more than the 3"),
        ] {
            assert!(found.starts_with(begins), "{found:?} is not {begins:?}");
        }
        assert_eq!(
            Limits::default().misfit(&"/a".repeat(32), &facts(0, "u:p"), 0),
            None
        );
        assert!(
            Limits::default()
                .misfit(&"/a".repeat(33), &facts(0, "u:p"), 0)
                .is_some()
        );
    }

    #[test]
    fn what_is_below_stays_behind_too() {
        let mut misfits = Misfits::default();
        assert!(!misfits.cover("/a"));
        assert!(misfits.insert("/a/b", "why"));
        assert!(!misfits.insert("/a/b", "why") && misfits.insert("/a/b", "another reason"));
        assert!(misfits.cover("/a/b") && misfits.cover("/a/b/c/d"));
        assert!(!misfits.cover("/a") && !misfits.cover("/a/bc") && !misfits.cover("/"));
        misfits.insert("/c", "why");
        misfits.remove_within("/a");
        assert!(!misfits.cover("/a/b") && misfits.remove("/c") && !misfits.remove("/c"));
        assert_eq!(misfits.len(), 0);
    }
}
