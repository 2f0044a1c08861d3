//! Whether carrying out a request may make the state larger: what a cluster whose disks are nearly full still takes.
//! Nothing here knows of disks or refuses anything; [`crate::apply`] does not ask.

use crate::locks::state::lifts;
use crate::model::access::command::AccessCommand;
use crate::model::acl::Acl;
use crate::model::command::{Command, Op, Request, Step};
use crate::model::identity::Identities;
use crate::model::lock::LockCommand;
use crate::model::mirrored::MirrorStep;
use crate::store::Store;

/// Data up to this size may replace what is at least as large; more is taken for growth although the state does not
/// grow. A change stands in the log with all its bytes, and the last room there is for those who give something back.
pub const MAX_REPLACED_BYTES: usize = 4 * 1024;

impl Store {
    /// Whether carrying `request` out now may make the state larger.
    ///
    /// Not counted is what is bounded for a session, or for all, however much is asked: remembered outcomes, and how
    /// often an owner has entered its lock. A request that was carried out before, and is only to be answered again,
    /// does not grow. The answer is meant for the state at this moment, and errs towards "yes".
    pub fn may_grow(&self, request: &Request) -> bool {
        if let Some(id) = &request.request_id
            && self.remembered_of(request.session, &request.caller, id).is_some()
        {
            return false;
        }
        match &request.command {
            Command::OpenSession { .. } => true,
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
            // It may: a step that puts nothing new is not looked for.
            Command::Mirror(steps) => steps.iter().any(|step| matches!(step, MirrorStep::Put(_))),
            Command::CloseSession { .. }
            | Command::ExpireSessions { .. }
            | Command::Sweep(_)
            | Command::SetLimits(_)
            | Command::RecordSilence { .. }
            | Command::NoteHeartbeats { .. }
            | Command::Reconnect { .. }
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
            Command::Lock(LockCommand::Acquire { wish, .. }) => !self.locks.joins(request.session, wish),
            Command::Lock(LockCommand::AcquireMany { wishes, .. }) => {
                wishes.iter().any(|wish| !self.locks.joins(request.session, wish))
            }
            // The lock may not exist yet. To lift what was set is always possible.
            Command::Lock(LockCommand::Configure { limit, draining, .. }) => !lifts(*limit, *draining),
            // What holders are asked and answer is bounded for each, as is what is noted of an upgrade.
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
                | LockCommand::CountDelays { .. },
            ) => false,
        }
    }

    fn op_may_grow(&self, op: &Op, caller: &Identities) -> bool {
        match op {
            Op::Create { .. } => true,
            Op::Delete { .. } | Op::DeleteRecursive { .. } | Op::Check { .. } | Op::Held { .. } => false,
            // What is not there is refused anyway, or was made by an earlier operation, which grows itself.
            Op::Set { path, data, .. } => {
                let now = self.tree.find(path).map(|index| self.tree.node(index).data.len());
                data.len() > MAX_REPLACED_BYTES || now.is_some_and(|now| data.len() > now)
            }
            // As it will be stored: `auth` may stand for several names.
            Op::SetAcl { path, acl, .. } => {
                let now = self.tree.find(path).map(|index| size(self.tree.acl(index)));
                let then = acl.as_set_by(caller).map(|acl| size(&acl));
                match (now, then) {
                    (Some(now), Ok(then)) => then.0 > now.0 || then.1 > now.1,
                    // It is refused.
                    (None, _) | (_, Err(_)) => false,
                }
            }
        }
    }
}

/// How many entries a list has, and how many bytes of text.
fn size(acl: &Acl) -> (usize, usize) {
    let entries = acl.entries();
    let texts = entries.iter().map(|entry| entry.scheme.len() + entry.id.len());
    (entries.len(), texts.sum())
}
