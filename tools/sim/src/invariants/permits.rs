//! Permits within the limit: the holders of a semaphore have no more permits together than there are.

use std::sync::Arc;

use znode_store::{Hold, LockMode, LockName, Store};

use super::Check;

/// Looks at a lock.
pub fn check(lock: &LockName, holds: &[Arc<Hold>], store: &Store) -> Check {
    let Some(LockMode::Semaphore { limit }) = holds.first().map(|hold| hold.mode) else {
        return Ok(());
    };
    // What was configured counts for those who come later, so whoever holds may have come under another limit.
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
            "{permits} permits of {lock} are out, and there are {limit}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_too_many_is_noticed() {
        let lock = LockName::parse("a").expect("a name");
        assert_eq!(within(&lock, [1, 2].into_iter(), 3), Ok(()));
        assert!(within(&lock, [1, 2, 1].into_iter(), 3).is_err());
    }
}
