//! Estimate of whether a request may make the state larger, for a cluster whose disks are nearly full. This module does not know
//! disks and refuses nothing; [`crate::apply`] does not use it.

use crate::locks::state::only_removes_settings;
use crate::model::access::command::AccessCommand;
use crate::model::acl::Acl;
use crate::model::command::{Command, Op, Request, Step};
use crate::model::identity::Identities;
use crate::model::lock::LockCommand;
use crate::model::mirrored::MirrorStep;
use crate::store::Store;

/// Maximum size of data that may replace data of at least the same size. Larger data counts as growth although the state does not grow,
/// because all bytes of a change are in the log, and the last free space is reserved for requests that free some.
pub const MAX_REPLACED_BYTES: usize = 4 * 1024;

impl Store {
    /// Returns whether executing `request` now may make the state larger.
    ///
    /// Bounded quantities do not count: recorded outcomes, and the entries of an owner to its lock. A request with a recorded outcome is
    /// only answered again, and does not grow. The answer is valid for the state at this moment, and errs towards "yes".
    pub fn may_grow(&self, request: &Request) -> bool {
        if let Some(id) = &request.request_id
            && self
                .recorded_outcome(request.session, &request.caller, id)
                .is_some()
        {
            return false;
        }
        match &request.command {
            Command::OpenSession { .. } | Command::SetQuotas { quotas: Some(_), .. } => true,
            Command::Access(
                AccessCommand::Secure { .. }
                | AccessCommand::CreateToken(_)
                | AccessCommand::SetRole { .. }
                | AccessCommand::MapCertificate { .. },
            ) => true,
            Command::Access(
                AccessCommand::RevokeToken(_)
                | AccessCommand::DeleteRole(_)
                | AccessCommand::UnmapCertificate(_)
                | AccessCommand::EndWaitsWithRights,
            ) => false,
            // A put counts as growth, even if it changes nothing.
            Command::Mirror(steps) => steps.iter().any(|step| matches!(step, MirrorStep::Put(_))),
            Command::CloseSession { .. }
            | Command::ExpireSessions { .. }
            | Command::Sweep(_)
            | Command::SetLimits(_)
            | Command::RecordSilence { .. }
            | Command::NoteHeartbeats { .. }
            | Command::RenewLease { .. }
            | Command::ReleaseLease { .. }
            | Command::Reconnect { .. }
            | Command::SetQuotas { quotas: None, .. }
            | Command::InTurn {
                step: Step::CloseSession,
                ..
            } => false,
            Command::InTurn {
                step: Step::Write(op),
                ..
            }
            | Command::Write(op) => self.op_may_grow(op, &request.caller),
            Command::InTurn {
                step: Step::Multi(ops),
                ..
            }
            | Command::Multi(ops) => ops.iter().any(|op| self.op_may_grow(op, &request.caller)),
            Command::Lock(LockCommand::Acquire { wish, .. } | LockCommand::AcquireBounded { wish, .. }) => {
                !self.locks.joins(request.session, wish)
            }
            Command::Lock(LockCommand::AcquireMany { wishes, .. }) => {
                wishes.iter().any(|wish| !self.locks.joins(request.session, wish))
            }
            // Configuring a lock may create it. Removing settings is always possible.
            Command::Lock(LockCommand::Configure { limit, draining, .. }) => {
                !only_removes_settings(*limit, *draining)
            }
            // A replaced lease ends, so the new one adds only its note.
            // Release requests, their answers and upgrades are bounded for each holder.
            Command::Lock(
                LockCommand::Release { .. }
                | LockCommand::ReleaseMany { .. }
                | LockCommand::Withdraw { .. }
                | LockCommand::WithdrawMany { .. }
                | LockCommand::Break { .. }
                | LockCommand::Downgrade { .. }
                | LockCommand::Upgrade { .. }
                | LockCommand::Revoke { .. }
                | LockCommand::AnswerRevoke { .. }
                | LockCommand::EndHolds { .. }
                | LockCommand::ChangeLease { .. }
                | LockCommand::CountDelays { .. },
            ) => false,
        }
    }

    fn op_may_grow(&self, op: &Op, caller: &Identities) -> bool {
        match op {
            Op::Create { .. } => true,
            Op::Delete { .. } | Op::DeleteRecursive { .. } | Op::Check { .. } | Op::Held { .. } => false,
            // A missing znode is refused, or an earlier operation creates it, which counts as growth itself.
            Op::Set { path, data, .. } => {
                let now = self.tree.find(path).map(|index| self.tree.node(index).data.len());
                data.len() > MAX_REPLACED_BYTES || now.is_some_and(|now| data.len() > now)
            }
            // The list is compared as it will be stored, because `auth` may stand for several identities.
            Op::SetAcl { path, acl, .. } => {
                let now = self.tree.find(path).map(|index| size(self.tree.acl(index)));
                let then = acl.as_set_by(caller).map(|acl| size(&acl));
                match (now, then) {
                    (Some(now), Ok(then)) => then.0 > now.0 || then.1 > now.1,
                    // The operation will be refused.
                    (None, _) | (_, Err(_)) => false,
                }
            }
        }
    }
}

/// Returns the number of entries of a list, and the number of bytes of its texts.
fn size(acl: &Acl) -> (usize, usize) {
    let entries = acl.entries();
    let texts = entries.iter().map(|entry| entry.scheme.len() + entry.id.len());
    (entries.len(), texts.sum())
}
