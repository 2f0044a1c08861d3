//! Locks that are in use at the source. Ephemeral znodes are not copied, because their sessions exist only at
//! the source. Among them are the contenders of lock recipes, which the operator of the switch needs to know.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::scope::parent;

/// Number of digits of a sequence number.
const DIGITS: usize = 10;

/// Prefixes that recipes write before the sequence number: Curator's locks, read-write locks, semaphores,
/// latches and leader selectors; kazoo's locks and elections; and the recipes in ZooKeeper's documentation.
const CONTENDER_PREFIXES: [&str; 10] = [
    "lock-",
    "__lock__",
    "__rlock__",
    "__READ__",
    "__WRIT__",
    "lease-",
    "latch-",
    "read-",
    "write-",
    "n_",
];

/// Znode at which a client holds a lock or waits for one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OpenLock {
    /// Path of the lock's znode.
    pub path: String,
    /// Contender with the lowest sequence number, which holds the lock in most recipes.
    pub first: String,
    /// Session of that contender, in hexadecimal digits.
    pub session: String,
    /// Number of contenders, the first one included.
    pub contenders: usize,
}

/// Finds the locks that have contenders of recipes, sorted by path.
pub fn open_locks(ephemerals: &BTreeMap<String, i64>) -> Vec<OpenLock> {
    let mut queues: BTreeMap<&str, BTreeSet<(&str, &str, i64)>> = BTreeMap::new();
    for (path, session) in ephemerals {
        let name = path.rsplit('/').next().unwrap_or_default();
        if let (Some(above), Some(number)) = (parent(path), number(name)) {
            queues.entry(above).or_default().insert((number, name, *session));
        }
    }
    let lock = |(path, queue): (&str, BTreeSet<(&str, &str, i64)>)| {
        let (_, first, session) = *queue.first()?;
        Some(OpenLock {
            path: path.to_owned(),
            first: first.to_owned(),
            session: format!("{session:016x}"),
            contenders: queue.len(),
        })
    };
    queues.into_iter().filter_map(lock).collect()
}

/// Returns the sequence number of a recipe's contender.
fn number(name: &str) -> Option<&str> {
    let (begin, digits) = name.split_at_checked(name.len().checked_sub(DIGITS)?)?;
    let is_numbered = digits.bytes().all(|byte| byte.is_ascii_digit());
    (is_numbered && CONTENDER_PREFIXES.iter().any(|prefix| begin.ends_with(prefix))).then_some(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contenders_of_recipes_are_distinguished_from_other_ephemerals() {
        let ephemerals = [
            ("/locks/a/_c_7d4e-lock-0000000012", 1),
            ("/locks/a/_c_0001-lock-0000000007", 2),
            ("/locks/b/5f__lock__0000000000", 3),
            ("/members/host-1", 4),
            ("/members/0000000001", 5),
            ("/c/_c_1-__READ__0000000003", 6),
            ("/lock-0000000001", 7),
            ("/ü/é", 8),
        ];
        let ephemerals = ephemerals
            .map(|(path, session)| (path.to_owned(), session))
            .into();
        let shown: Vec<_> = open_locks(&ephemerals)
            .into_iter()
            .map(|lock| {
                format!(
                    "{} {} {} {}",
                    lock.path, lock.first, lock.session, lock.contenders
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                "/ lock-0000000001 0000000000000007 1",
                "/c _c_1-__READ__0000000003 0000000000000006 1",
                "/locks/a _c_0001-lock-0000000007 0000000000000002 2",
                "/locks/b 5f__lock__0000000000 0000000000000003 1",
            ]
        );
    }
}
