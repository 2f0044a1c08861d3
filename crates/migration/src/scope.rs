//! Which znodes are moved. Not the cluster's own below `/zookeeper`, but for the quotas, which users have set.

/// What is the cluster's own.
const SYSTEM: &str = "/zookeeper";

/// What is below it and the users'.
const QUOTAS: &str = "/zookeeper/quota";

/// What a quota has used. Each side counts that itself.
const STATS: &str = "/zookeeper_stats";

/// Where it is noted that a tree is being brought here, so that another run goes on, and nothing is overwritten after the
/// switch.
pub const MARK: &str = "/zookeeper/lockgate_migration";

/// See the module.
#[derive(Debug, Clone)]
pub struct Scope {
    root: String,
}

impl Scope {
    /// The znode `root` and all that is below it.
    pub fn new(root: &str) -> Self {
        let root = root.to_owned();
        Self { root }
    }

    /// The znode that all others are below.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Whether a znode is moved.
    pub fn has(&self, path: &str) -> bool {
        if !is_within(path, &self.root) {
            return false;
        }
        match is_within(path, SYSTEM) {
            true => is_within(path, QUOTAS) && path != QUOTAS,
            false => true,
        }
    }

    /// Whether something below a znode may be moved.
    pub fn leads_on(&self, path: &str) -> bool {
        self.has(path) || (self.has("/") && matches!(path, SYSTEM | QUOTAS))
    }

    /// Whether a znode's data is each side's own affair.
    pub fn has_own_data(path: &str) -> bool {
        is_within(path, QUOTAS) && path.ends_with(STATS)
    }

    /// The znodes above the root, from above, but for `/` itself.
    pub fn above(&self) -> Vec<String> {
        let ends = self.root.match_indices('/').skip(1).map(|(end, _)| end);
        ends.map(|end| self.root[..end].to_owned()).collect()
    }
}

/// Whether a path is `top` or below it.
pub fn is_within(path: &str, top: &str) -> bool {
    match path.strip_prefix(top) {
        Some(rest) => top == "/" || rest.is_empty() || rest.starts_with('/'),
        None => false,
    }
}

/// The parent of a znode; none of the root.
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
    fn the_clusters_own_stays() {
        let all = Scope::new("/");
        for path in [
            "/",
            "/a",
            "/a/b",
            "/zookeepers",
            "/zookeeper/quota/a",
            "/zookeeper/quota/a/zookeeper_limits",
        ] {
            assert!(all.has(path) && all.leads_on(path), "{path}");
        }
        for path in ["/zookeeper", "/zookeeper/quota", "/zookeeper/config", MARK] {
            assert!(!all.has(path), "{path}");
        }
        assert!(all.leads_on("/zookeeper/quota") && !all.leads_on("/zookeeper/config"));
        assert!(Scope::has_own_data("/zookeeper/quota/a/zookeeper_stats"));
        assert!(!Scope::has_own_data("/a/zookeeper_stats"));
    }

    #[test]
    fn a_part_of_the_tree_is_what_is_below_it() {
        let part = Scope::new("/a/b/c");
        assert!(part.has("/a/b/c") && part.has("/a/b/c/d"));
        for path in ["/", "/a", "/a/b", "/a/b/cd", "/zookeeper/quota/a"] {
            assert!(!part.has(path) && !part.leads_on(path), "{path}");
        }
        assert_eq!(part.above(), ["/a", "/a/b"]);
        assert!(Scope::new("/").above().is_empty() && Scope::new("/a").above().is_empty());
        assert_eq!(["/", "/a", "/a/b"].map(parent), [None, Some("/"), Some("/a")]);
    }
}
