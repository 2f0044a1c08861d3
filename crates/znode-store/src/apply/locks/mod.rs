//! Steps of the lock protocol. Each refuses before it changes anything.
//!
//! | file | content |
//! |---|---|
//! | `acquire.rs`, `many.rs` | one lock, several locks by one call |
//! | `release.rs` | release, withdraw, break |
//! | `modes.rs` | downgrade, upgrade |
//! | `configure.rs`, `release_request.rs` | settings of a lock; requests to release it |
//! | `contenders.rs` | changes of a contender's znode, which the steps share |
//! | `contender_end.rs`, `grant_waiters.rs` | ends of contenders; grants at the end of each command |

pub(crate) mod acquire;
pub(crate) mod configure;
pub(crate) mod contender_end;
pub(crate) mod contenders;
pub(crate) mod grant_waiters;
pub(crate) mod many;
pub(crate) mod modes;
mod release;
pub(crate) mod release_request;

use crate::apply::context::Context;
use crate::apply::locks::acquire::AcquireCall;
use crate::model::contender::Attempt;
use crate::model::ids::{RequestId, SessionId};
use crate::model::lock::{HoldBounds, LockCommand};
use crate::model::refusal::Refusal;
use crate::model::reply::Outcome;
use crate::store::Store;

/// Executes a step of the lock protocol. The caller records its outcome under `request_id`. The attempt has the id, too, for later
/// corrections of the recorded outcome.
pub(crate) fn lock_command(
    store: &mut Store,
    cx: &mut Context<'_>,
    session: Option<SessionId>,
    request_id: Option<&RequestId>,
    command: LockCommand,
) -> Outcome {
    let required = session.ok_or(Refusal::SessionRequired);
    let called = |id| Attempt {
        id,
        request_id: request_id.cloned(),
    };
    match command {
        LockCommand::Acquire {
            wish,
            guid,
            attempt,
            wait,
        } => {
            let call = AcquireCall {
                session: required?,
                wish,
                bounds: HoldBounds::default(),
                guid,
                attempt: called(attempt),
                wait,
            };
            acquire::acquire(store, cx, call)
        }
        LockCommand::AcquireMany {
            wishes,
            guid,
            attempt,
            wait,
        } => many::acquire_many(store, cx, required?, wishes, guid, &called(attempt), wait),
        LockCommand::Release { lock, holder } => release::release(store, cx, required?, lock, holder),
        LockCommand::ReleaseMany { holders } => many::release_many(store, cx, required?, holders),
        LockCommand::Downgrade { lock, holder, to } => {
            modes::downgrade(store, cx, required?, lock, holder, to)
        }
        LockCommand::Upgrade {
            lock,
            holder,
            attempt,
            wait,
        } => modes::upgrade(store, cx, required?, lock, holder, &called(attempt), wait),
        LockCommand::Withdraw {
            lock,
            holder,
            attempt,
            cause,
        } => Ok(release::withdraw(
            store, cx, required?, &lock, &holder, attempt, cause,
        )),
        LockCommand::WithdrawMany {
            holders,
            attempt,
            cause,
        } => many::withdraw_many(store, cx, required?, &holders, attempt, cause),
        LockCommand::AnswerRevoke { lock, holder, answer } => {
            release_request::answer_revoke(store, cx, required?, lock, holder, answer)
        }
        LockCommand::Break {
            lock,
            holder,
            by,
            reason,
        } => release::break_contender(store, cx, lock, holder, by, reason),
        LockCommand::Revoke {
            lock,
            holder,
            by,
            reason,
        } => release_request::revoke(store, cx, lock, holder, by, reason),
        LockCommand::Configure {
            lock,
            limit,
            draining,
        } => configure::configure(store, cx, lock, limit, draining),
        LockCommand::CountDelays { locks, term } => configure::count_delays(store, cx, locks, term),
        LockCommand::AcquireBounded {
            wish,
            guid,
            attempt,
            wait,
            bounds,
            lease,
        } => {
            let own = lease.map(|lease| lease.key.session);
            let call = AcquireCall {
                session: own.map_or(required, Ok)?,
                wish,
                bounds,
                guid,
                attempt: called(attempt),
                wait,
            };
            match lease {
                Some(lease) => acquire::acquire_lease(store, cx, lease, call),
                None => acquire::acquire(store, cx, call),
            }
        }
        LockCommand::EndHolds { holders, term } => release::end_holds(store, cx, holders, term),
        LockCommand::ChangeLease { .. } => unreachable!("it is a command on a lease: apply::leases"),
    }
}
