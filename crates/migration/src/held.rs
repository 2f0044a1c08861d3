//! What does not come along: ephemeral znodes, whose sessions live at the source. Among them are those by which recipes hold
//! locks and stand in queues; whoever switches wants to know of them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::scope::parent;

/// How many digits a sequence number has.
const DIGITS: usize = 10;

/// What recipes write before the number: Curator's locks, read-write locks, semaphores, latches and leader selectors, kazoo's
/// locks and elections, and what the page of recipes of ZooKeeper's documentation tells people to write.
const MARKS: [&str; 10] = [
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

/// A znode at which somebody holds a lock, or waits for one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeldLock {
    /// The lock's own znode.
    pub path: String,
    /// The contender with the lowest number, which holds the lock by most recipes.
    pub first: String,
    /// Whose that is, in hexadecimal digits.
    pub session: String,
    /// How many there are with it.
    pub contenders: usize,
}

/// Where contenders of recipes are, by path.
pub fn held_locks(ephemerals: &BTreeMap<String, i64>) -> Vec<HeldLock> {
    let mut queues: BTreeMap<&str, BTreeSet<(&str, &str, i64)>> = BTreeMap::new();
    for (path, session) in ephemerals {
        let name = path.rsplit('/').next().unwrap_or_default();
        if let (Some(above), Some(number)) = (parent(path), number(name)) {
            queues.entry(above).or_default().insert((number, name, *session));
        }
    }
    let lock = |(path, queue): (&str, BTreeSet<(&str, &str, i64)>)| {
        let (_, first, session) = *queue.first()?;
        Some(HeldLock {
            path: path.to_owned(),
            first: first.to_owned(),
            session: format!("{session:016x}"),
            contenders: queue.len(),
        })
    };
    queues.into_iter().filter_map(lock).collect()
}

/// The number of a contender of a recipe.
fn number(name: &str) -> Option<&str> {
    let (begin, digits) = name.split_at_checked(name.len().checked_sub(DIGITS)?)?;
    let is_numbered = digits.bytes().all(|byte| byte.is_ascii_digit());
    (is_numbered && MARKS.iter().any(|mark| begin.ends_with(mark))).then_some(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contenders_of_recipes_are_told_from_other_ephemerals() {
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
        let shown: Vec<_> = held_locks(&ephemerals)
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
