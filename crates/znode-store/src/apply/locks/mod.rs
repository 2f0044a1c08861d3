//! Steps of the lock protocol.

pub(crate) mod acquire;
pub(crate) mod configure;
pub(crate) mod contender_end;
mod contenders;
pub(crate) mod grant_waiters;
pub(crate) mod many;
pub(crate) mod modes;
mod release;
pub(crate) mod release_request;

use crate::apply::context::Context;
use crate::apply::locks::acquire::AcquireCall;
use crate::locks::contender::Attempt;
use crate::model::ids::{RequestId, SessionId};
use crate::model::lock::LockCommand;
use crate::model::refusal::Refusal;
use crate::model::reply::Outcome;
use crate::store::Store;

impl Store {
    /// Executes a step of the lock protocol. The caller records its outcome under `request_id`. The attempt has the id, too, for later
    /// corrections of the recorded outcome.
    pub(crate) fn lock_command(
        &mut self,
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
                    guid,
                    attempt: called(attempt),
                    wait,
                };
                self.acquire(cx, call)
            }
            LockCommand::AcquireMany {
                wishes,
                guid,
                attempt,
                wait,
            } => self.acquire_many(cx, required?, wishes, guid, &called(attempt), wait),
            LockCommand::Release { lock, holder } => self.release(cx, required?, lock, holder),
            LockCommand::ReleaseMany { holders } => self.release_many(cx, required?, holders),
            LockCommand::Downgrade { lock, holder, to } => self.downgrade(cx, required?, lock, holder, to),
            LockCommand::Upgrade {
                lock,
                holder,
                attempt,
                wait,
            } => self.upgrade(cx, required?, lock, holder, &called(attempt), wait),
            LockCommand::Withdraw {
                lock,
                holder,
                attempt,
                cause,
            } => Ok(self.withdraw(cx, required?, &lock, &holder, attempt, cause)),
            LockCommand::WithdrawMany {
                holders,
                attempt,
                cause,
            } => self.withdraw_many(cx, required?, &holders, attempt, cause),
            LockCommand::AnswerRevoke { lock, holder, answer } => {
                self.answer_revoke(cx, required?, lock, holder, answer)
            }
            LockCommand::Break {
                lock,
                holder,
                by,
                reason,
            } => self.break_contender(cx, lock, holder, by, reason),
            LockCommand::Revoke {
                lock,
                holder,
                by,
                reason,
            } => self.revoke(cx, lock, holder, by, reason),
            LockCommand::Configure {
                lock,
                limit,
                draining,
            } => self.configure(cx, lock, limit, draining),
            LockCommand::CountDelays { locks, term } => self.count_delays(cx, locks, term),
        }
    }
}
