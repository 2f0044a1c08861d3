//! Scope of the migration: the znodes below the root, without the cluster's own ones below `/zookeeper`, but
//! with the users' quotas.

/// Root of the cluster's own znodes.
const SYSTEM: &str = "/zookeeper";

/// Root of the quotas, which users have set.
const QUOTAS: &str = "/zookeeper/quota";

/// Suffix of a quota's usage znode. Each side computes the usage itself.
const STATS: &str = "/zookeeper_stats";

/// Path of the checkpoint, see `checkpoint`.
pub const CHECKPOINT: &str = "/zookeeper/lockgate_migration";

/// Scope of the migration. See the module.
#[derive(Debug, Clone)]
pub struct Scope {
    root: String,
}

impl Scope {
    /// Creates the scope of the znode `root` and its descendants.
    pub fn new(root: &str) -> Self {
        let root = root.to_owned();
        Self { root }
    }

    /// Returns the root.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Returns whether a znode is migrated.
    pub fn has(&self, path: &str) -> bool {
        if !is_within(path, &self.root) {
            return false;
        }
        match is_within(path, SYSTEM) {
            true => is_within(path, QUOTAS) && path != QUOTAS,
            false => true,
        }
    }

    /// Returns whether a znode may have migrated znodes below it.
    pub fn may_have_members_below(&self, path: &str) -> bool {
        self.has(path) || (self.has("/") && matches!(path, SYSTEM | QUOTAS))
    }

    /// Returns whether each side has its own data in this znode.
    pub fn has_own_data(path: &str) -> bool {
        is_within(path, QUOTAS) && path.ends_with(STATS)
    }

    /// Returns the ancestors of the root, the topmost first, without `/`.
    pub fn above(&self) -> Vec<String> {
        let ends = self.root.match_indices('/').skip(1).map(|(end, _)| end);
        ends.map(|end| self.root[..end].to_owned()).collect()
    }
}

/// Returns whether a path is `top` or below it.
pub fn is_within(path: &str, top: &str) -> bool {
    match path.strip_prefix(top) {
        Some(rest) => top == "/" || rest.is_empty() || rest.starts_with('/'),
        None => false,
    }
}

/// Returns the parent of a znode; `None` for `/`.
pub fn parent(path: &str) -> Option<&str> {
    match path.rsplit_once('/')? {
        ("", "") => None,
        ("", _) => Some("/"),
        (parent, _) => Some(parent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn znodes_of_the_cluster_itself_are_not_migrated() {
        let all = Scope::new("/");
        for path in [
            "/",
            "/a",
            "/a/b",
            "/zookeepers",
            "/zookeeper/quota/a",
            "/zookeeper/quota/a/zookeeper_limits",
        ] {
            assert!(all.has(path) && all.may_have_members_below(path), "{path}");
        }
        for path in ["/zookeeper", "/zookeeper/quota", "/zookeeper/config", CHECKPOINT] {
            assert!(!all.has(path), "{path}");
        }
        assert!(
            all.may_have_members_below("/zookeeper/quota")
                && !all.may_have_members_below("/zookeeper/config")
        );
        assert!(Scope::has_own_data("/zookeeper/quota/a/zookeeper_stats"));
        assert!(!Scope::has_own_data("/a/zookeeper_stats"));
    }

    #[test]
    fn scope_of_a_subtree_is_its_root_and_descendants() {
        let part = Scope::new("/a/b/c");
        assert!(part.has("/a/b/c") && part.has("/a/b/c/d"));
        for path in ["/", "/a", "/a/b", "/a/b/cd", "/zookeeper/quota/a"] {
            assert!(!part.has(path) && !part.may_have_members_below(path), "{path}");
        }
        assert_eq!(part.above(), ["/a", "/a/b"]);
        assert!(Scope::new("/").above().is_empty() && Scope::new("/a").above().is_empty());
        assert_eq!(["/", "/a", "/a/b"].map(parent), [None, Some("/"), Some("/a")]);
    }
}
