//! Plan of an acquire: what the queue refuses, and which contender the call gets.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::locks::contender::Contender;
use crate::locks::deadlock::Ask;
use crate::locks::queue::Queue;
use crate::locks::state::MAX_LOCK_DELAY_MS;
use crate::locks::table::Locks;
use crate::model::ids::SessionId;
use crate::model::lock::{
    HolderId, LockMode, LockRequest, LockWish, MAX_ADDRESS_BYTES, MAX_CONTENDERS, MAX_NAMED_HOLDERS,
    MAX_NOTE_BYTES, MAX_OWNER_BYTES,
};
use crate::model::path::ZPath;
use crate::model::refusal::Refusal;

/// Decision about a call that is not refused.
pub(crate) enum Plan {
    /// The call joins the contender with this path.
    Join(ZPath),
    /// The call gets a contender of its own, which holds the lock at once if the lock is free.
    Enter { is_free: bool },
}

/// Refuses malformed requests. It does not rely on the checks of front ends.
fn check_wish(wish: &LockWish) -> Result<(), Refusal> {
    let bad = |what: String| Err(Refusal::BadWish(what.into()));
    check_permits(wish)?;
    if wish.lock_delay_ms > MAX_LOCK_DELAY_MS {
        return bad(format!(
            "a lock-delay of {} ms is more than the {MAX_LOCK_DELAY_MS} allowed",
            wish.lock_delay_ms
        ));
    }
    for (what, text, limit) in [
        ("owner", &*wish.owner, MAX_OWNER_BYTES),
        ("note", &*wish.note, MAX_NOTE_BYTES),
        ("address", wish.address.as_str(), MAX_ADDRESS_BYTES),
    ] {
        if text.len() > limit {
            return bad(format!(
                "{} bytes of {what} are more than the {limit} allowed",
                text.len()
            ));
        }
    }
    Ok(())
}

fn check_permits(wish: &LockWish) -> Result<(), Refusal> {
    let bad = |what: String| Err(Refusal::BadWish(what.into()));
    match (wish.mode, wish.permits) {
        (LockMode::Semaphore { .. }, 0) => bad("at least 1 permit has to be asked for".into()),
        // A request without a limit is checked when the limit is known.
        (LockMode::Semaphore { limit: 0 }, _) => Ok(()),
        (LockMode::Semaphore { limit }, permits) if permits > limit => bad(format!(
            "{permits} permits are never free where there are {limit}"
        )),
        (LockMode::Semaphore { .. }, _) | (_, 1) => Ok(()),
        (LockMode::Exclusive | LockMode::Shared | LockMode::Upgradeable, _) => {
            bad("only a semaphore has permits".into())
        }
    }
}

/// Returns the rank of a mode among exclusive, upgradeable and shared: a higher one includes the lower ones.
pub(crate) fn reach(mode: LockMode) -> u8 {
    match mode {
        LockMode::Semaphore { .. } | LockMode::Shared => 0,
        LockMode::Upgradeable => 1,
        LockMode::Exclusive => 2,
    }
}

pub(crate) fn request_of(wish: &LockWish) -> LockRequest {
    LockRequest {
        mode: wish.mode,
        permits: wish.permits,
    }
}

/// Returns whether a lock in use in one mode can be requested in the other.
fn go_together(in_use: LockMode, wanted: LockMode) -> bool {
    match (in_use, wanted) {
        (LockMode::Semaphore { limit: in_use }, LockMode::Semaphore { limit: wanted }) => in_use == wanted,
        (LockMode::Semaphore { .. }, _) | (_, LockMode::Semaphore { .. }) => false,
        _ => true,
    }
}

pub(crate) fn named_holders(queue: &Queue) -> Vec<HolderId> {
    names(queue.holders())
}

/// Returns the names of the first holders, at most as many as a refusal contains.
pub(crate) fn names<'q>(holders: impl Iterator<Item = &'q Contender>) -> Vec<HolderId> {
    let some = holders.take(MAX_NAMED_HOLDERS);
    some.map(|holder| String::from(holder.name())).collect()
}

impl Locks {
    /// Decides which contender a call gets, and refuses what the queue refuses. Fills in the limit in force if the request names none.
    pub(crate) fn plan(
        &self,
        session: SessionId,
        wish: &mut LockWish,
        wait: bool,
        stays: impl Fn(&Contender) -> bool,
    ) -> Result<Plan, Refusal> {
        check_wish(wish)?;
        let terms = self.terms(&wish.lock);
        let queue = self.queue(&wish.lock);
        // The mode in use, with the limit in force.
        let in_use = queue.and_then(|queue| queue.mode(terms));
        let in_use = in_use.or(terms.limit.map(|limit| LockMode::Semaphore { limit }));
        match (wish.mode, in_use) {
            (LockMode::Semaphore { limit: 0 }, None) => {
                return Err(Refusal::BadWish(
                    "the semaphore is not in use, so its limit has to be named".into(),
                ));
            }
            (LockMode::Semaphore { limit: 0 }, Some(in_use @ LockMode::Semaphore { .. })) => {
                wish.mode = in_use;
                check_permits(wish)?;
            }
            // Permits cannot be counted together with holders of other modes, nor against two limits.
            (wanted, Some(in_use)) if !go_together(in_use, wanted) => {
                return Err(Refusal::ModeConflict {
                    lock: wish.lock.clone(),
                    in_use,
                });
            }
            _ => {}
        }
        // The owner holds the lock already, or waits already.
        if wish.may_reenter()
            && let Some(own) = queue.and_then(|queue| queue.of_owner(session, &wish.owner))
        {
            return Ok(Plan::Join(own.path.clone()));
        }
        if terms.draining {
            return Err(Refusal::Draining(wish.lock.clone()));
        }
        let request = request_of(wish);
        let is_free = queue.map_or(!terms.is_shut(), |queue| queue.would_grant(request, terms));
        // Others hold the lock or wait, and the caller does not want to wait.
        if !wait && !is_free {
            return Err(Refusal::LockBusy {
                lock: wish.lock.clone(),
                holders: queue.map(named_holders).unwrap_or_default(),
            });
        }
        if queue.is_some_and(|queue| queue.len() >= MAX_CONTENDERS) {
            return Err(Refusal::QueueFull(wish.lock.clone()));
        }
        if !is_free && let Some(party) = wish.distinct_owner() {
            self.refuse_deadlock((session, party.clone()), &Ask::Enter(&wish.lock, request), stays)?;
        }
        Ok(Plan::Enter { is_free })
    }

    /// Returns whether the owner has a contender already, which the call would join.
    pub(crate) fn joins(&self, session: Option<SessionId>, wish: &LockWish) -> bool {
        session.is_some_and(|session| {
            let queue = self.queue(&wish.lock);
            let own = queue.and_then(|queue| queue.of_owner(session, &wish.owner));
            wish.may_reenter() && own.is_some()
        })
    }
}
