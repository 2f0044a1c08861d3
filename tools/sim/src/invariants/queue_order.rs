//! Fair queues: no holder has overtaken a waiter, and no waiter waits although it could be granted.

use znode_store::{ContenderView, LockMode, LockName, LockView, Store};

use super::Check;

/// Checks a lock.
pub fn check(lock: &LockName, store: &Store) -> Check {
    let Some(view) = store.lock(lock) else {
        return Ok(());
    };
    order(&view)?;
    match view.queue.first() {
        // An entry that goes on with the end of its session removes it.
        Some(first) if store.is_ending(first.session) => Ok(()),
        // The next entry goes on with the grants.
        Some(_) if store.unfinished_grants().any(|unfinished| unfinished == lock) => Ok(()),
        _ => waits_for_a_reason(&view),
    }
}

/// Parses the number in a contender's name, which is the order of arrival.
fn number(contender: &ContenderView) -> Option<u64> {
    let digits = contender.holder.len().checked_sub(10)?;
    contender.holder.get(digits..)?.parse().ok()
}

fn order(view: &LockView) -> Check {
    let last = view.holders.iter().max_by_key(|holder| number(holder));
    let first = view.queue.iter().min_by_key(|waiter| number(waiter));
    match (last, first) {
        (Some(holder), Some(waiter)) if number(holder) > number(waiter) => Err(format!(
            "{} holds {}, although {} waited before it",
            holder.holder, view.lock, waiter.holder
        )),
        _ => Ok(()),
    }
}

fn waits_for_a_reason(view: &LockView) -> Check {
    let Some(first) = view.queue.first() else {
        return Ok(());
    };
    let upgrading = view
        .holders
        .iter()
        .any(|holder| holder.upgrading_since_ms.is_some());
    if view.closed.is_some() || view.draining || upgrading {
        return Ok(());
    }
    let fits = match first.mode {
        LockMode::Exclusive => view.holders.is_empty(),
        LockMode::Shared => modes(view).all(|mode| matches!(mode, LockMode::Shared | LockMode::Upgradeable)),
        LockMode::Upgradeable => modes(view).all(|mode| mode == LockMode::Shared),
        LockMode::Semaphore { limit } => {
            let out: u32 = view.holders.iter().map(|holder| holder.permits).sum();
            let limit = view.limit.unwrap_or(limit);
            modes(view).all(|mode| matches!(mode, LockMode::Semaphore { .. })) && out + first.permits <= limit
        }
    };
    match fits {
        true => Err(format!(
            "{} waits for {} although it could be granted",
            first.holder, view.lock
        )),
        false => Ok(()),
    }
}

fn modes(view: &LockView) -> impl Iterator<Item = LockMode> {
    view.holders.iter().map(|holder| holder.mode)
}

#[cfg(test)]
mod tests {
    use znode_store::{HoldBounds, SessionId, Zxid};

    use super::*;

    fn contender(number: u32, mode: LockMode) -> ContenderView {
        ContenderView {
            holder: format!("x-{number:010}"),
            session: SessionId(1),
            owner: "".into(),
            note: "".into(),
            address: "".into(),
            mode,
            permits: 1,
            holds: 1,
            fencing_token: Zxid(1),
            since_ms: 0,
            lock_delay_ms: 0,
            bounds: HoldBounds::default(),
            upgrading_since_ms: None,
            revoke: None,
        }
    }

    fn view(holders: &[(u32, LockMode)], queue: &[(u32, LockMode)]) -> LockView {
        let contenders = |of: &[(u32, LockMode)]| of.iter().map(|(at, mode)| contender(*at, *mode)).collect();
        LockView {
            lock: LockName::parse("a").expect("a name"),
            mode: None,
            limit: Some(2),
            draining: false,
            closed: None,
            holders: contenders(holders),
            queue: contenders(queue),
            blocking_znodes: Vec::new(),
        }
    }

    #[test]
    fn overtaken_or_forgotten_waiter_is_a_violation() {
        let (one, some, permit) = (
            LockMode::Exclusive,
            LockMode::Shared,
            LockMode::Semaphore { limit: 2 },
        );
        let good = view(&[(1, some)], &[(2, one), (3, some)]);
        assert_eq!(order(&good).and_then(|()| waits_for_a_reason(&good)), Ok(()));
        assert!(order(&view(&[(1, some), (3, some)], &[(2, one)])).is_err());
        assert!(waits_for_a_reason(&view(&[], &[(2, one)])).is_err());
        assert!(waits_for_a_reason(&view(&[(1, permit)], &[(2, permit)])).is_err());
        assert_eq!(
            waits_for_a_reason(&view(&[(1, permit), (2, permit)], &[(3, permit)])),
            Ok(())
        );
    }
}
