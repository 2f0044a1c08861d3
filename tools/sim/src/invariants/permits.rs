//! Permits within the limit: the holders of a semaphore have no more permits together than its limit.

use std::sync::Arc;

use znode_store::{Hold, LockMode, LockName, Store};

use super::Check;

/// Checks a lock.
pub fn check(lock: &LockName, holds: &[Arc<Hold>], store: &Store) -> Check {
    let Some(LockMode::Semaphore { limit }) = holds.first().map(|hold| hold.mode) else {
        return Ok(());
    };
    // A new limit applies to later contenders, so present holders may have been granted permits under another
    // one.
    let limit = store
        .lock(lock)
        .and_then(|view| view.limit)
        .unwrap_or(limit)
        .max(limit);
    within(lock, holds.iter().map(|hold| hold.permits), limit)
}

fn within(lock: &LockName, permits: impl Iterator<Item = u32>, limit: u32) -> Check {
    let permits: u32 = permits.sum();
    match permits <= limit {
        true => Ok(()),
        false => Err(format!(
            "{permits} permits of {lock} are granted, above the limit of {limit}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_above_the_limit_are_a_violation() {
        let lock = LockName::parse("a").expect("a name");
        assert_eq!(within(&lock, [1, 2].into_iter(), 3), Ok(()));
        assert!(within(&lock, [1, 2, 1].into_iter(), 3).is_err());
    }
}
