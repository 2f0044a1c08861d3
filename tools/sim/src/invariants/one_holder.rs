//! Compatible holders at every position: an exclusive holder is alone, at most one holder is upgradeable,
//! semaphore holders do not mix with others, and each holder has a session, live or ending, and a znode in its queue.

use std::sync::Arc;

use znode_store::{Hold, LockMode, LockName, SessionFate, Store};

use super::Check;

/// Checks a lock.
pub fn check(lock: &LockName, holds: &[Arc<Hold>], store: &Store) -> Check {
    modes(lock, &holds.iter().map(|hold| hold.mode).collect::<Vec<_>>())?;
    for hold in holds {
        if store.session_fate(hold.session) != SessionFate::Live && !store.is_ending(hold.session) {
            return Err(format!(
                "{lock} is held by {}, whose session has ended",
                hold.holder
            ));
        }
        let znode = lock.znode().join(&hold.holder).map_err(|bad| bad.to_string())?;
        if store.stat(&znode).is_none() {
            return Err(format!("{lock} is held by {}, which has no znode", hold.holder));
        }
    }
    Ok(())
}

fn modes(lock: &LockName, modes: &[LockMode]) -> Check {
    let count = |wanted: fn(&LockMode) -> bool| modes.iter().filter(|mode| wanted(mode)).count();
    let exclusive = count(|mode| matches!(mode, LockMode::Exclusive));
    let upgradeable = count(|mode| matches!(mode, LockMode::Upgradeable));
    let semaphores = count(|mode| matches!(mode, LockMode::Semaphore { .. }));
    if exclusive > 0 && modes.len() > 1 {
        return Err(format!(
            "{lock} has {} holders, {exclusive} of them exclusive",
            modes.len()
        ));
    }
    if upgradeable > 1 {
        return Err(format!("{lock} has {upgradeable} upgradeable holders"));
    }
    if semaphores > 0 && semaphores < modes.len() {
        return Err(format!("{lock} is a semaphore for some of its holders only"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incompatible_holders_are_a_violation() {
        let lock = LockName::parse("a").expect("a name");
        let (one, some, up) = (LockMode::Exclusive, LockMode::Shared, LockMode::Upgradeable);
        let permit = LockMode::Semaphore { limit: 2 };
        for good in [&[one][..], &[some, some, up], &[permit, permit], &[]] {
            assert_eq!(modes(&lock, good), Ok(()));
        }
        for bad in [&[one, one][..], &[some, one], &[up, up], &[permit, some]] {
            assert!(modes(&lock, bad).is_err(), "{bad:?}");
        }
    }
}
