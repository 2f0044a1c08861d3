//! Short label of a command for logs and traces. It is cheap to store, since it is rarely read.

use std::fmt;

use znode_store::{Command, LockCommand, LockName, LockWish, Op, Step, ZPath};

/// Maximum number of characters of a path in a label.
pub const MAX_SHOWN: usize = 1024;

/// Label of a command: its kind, and the znode that it is about. It contains no secret; names and paths come from the callers.
#[derive(Debug, Clone)]
pub struct CommandLabel {
    /// Kind of the command, as `acquire`.
    pub what: &'static str,
    /// Znode, or the znode of the lock. If there are several, the first one.
    pub at: Option<ZPath>,
}

impl fmt::Display for CommandLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            Some(path) => write!(f, "{} {:.MAX_SHOWN$}", self.what, path.as_str()),
            None => f.write_str(self.what),
        }
    }
}

impl CommandLabel {
    /// Returns the label of a command.
    pub fn of(command: &Command) -> Self {
        let (what, at) = match command {
            Command::OpenSession { .. } => ("open_session", None),
            Command::CloseSession { .. } => ("close_session", None),
            Command::ExpireSessions { .. } => ("expire_sessions", None),
            Command::Write(op) => return Self::of_op(op),
            Command::Multi(ops) => ("multi", ops.first().and_then(path)),
            Command::Sweep(paths) => ("sweep", paths.first().cloned()),
            Command::SetLimits(_) => ("set_limits", None),
            Command::RecordSilence { .. } => ("record_silence", None),
            Command::NoteHeartbeats { .. } => ("note_heartbeats", None),
            Command::RenewLease { .. } => ("renew_lease", None),
            Command::ReleaseLease { .. } => ("release_lease", None),
            Command::SetQuotas { .. } => ("set_quotas", None),
            Command::Lock(command) => return Self::of_lock(command),
            Command::Reconnect { .. } => ("reconnect", None),
            Command::InTurn { step, .. } => match step {
                Step::Write(op) => return Self::of_op(op),
                Step::Multi(ops) => ("multi", ops.first().and_then(path)),
                Step::CloseSession => ("close_session", None),
            },
            Command::Access(_) => ("access", None),
            Command::Mirror(steps) => ("mirror", steps.first().map(|step| step.path().clone())),
        };
        Self { what, at }
    }

    fn of_op(op: &Op) -> Self {
        let what = match op {
            Op::Create { .. } => "create",
            Op::Delete { .. } => "delete",
            Op::DeleteRecursive { .. } => "delete_recursive",
            Op::Set { .. } => "set",
            Op::SetAcl { .. } => "set_acl",
            Op::Check { .. } => "check",
            Op::Held { .. } => "held",
        };
        Self { what, at: path(op) }
    }

    fn of_lock(command: &LockCommand) -> Self {
        let wish = |wish: &LockWish| wish.lock.clone();
        let (what, lock): (_, Option<LockName>) = match command {
            LockCommand::Acquire { wish: one, .. } | LockCommand::AcquireBounded { wish: one, .. } => {
                ("acquire", Some(wish(one)))
            }
            LockCommand::Release { lock, .. } => ("release", Some(lock.clone())),
            LockCommand::Withdraw { lock, .. } => ("withdraw", Some(lock.clone())),
            LockCommand::Break { lock, .. } => ("break", Some(lock.clone())),
            LockCommand::Downgrade { lock, .. } => ("downgrade", Some(lock.clone())),
            LockCommand::Upgrade { lock, .. } => ("upgrade", Some(lock.clone())),
            LockCommand::AcquireMany { wishes, .. } => ("acquire_many", wishes.first().map(wish)),
            LockCommand::ReleaseMany { holders } => ("release_many", first(holders)),
            LockCommand::WithdrawMany { holders, .. } => ("withdraw_many", first(holders)),
            LockCommand::Configure { lock, .. } => ("configure", Some(lock.clone())),
            LockCommand::Revoke { lock, .. } => ("revoke", Some(lock.clone())),
            LockCommand::AnswerRevoke { lock, .. } => ("answer_revoke", Some(lock.clone())),
            LockCommand::CountDelays { .. } => ("count_delays", None),
            LockCommand::EndHolds { holders, .. } => ("end_holds", first(holders)),
            LockCommand::ChangeLease { lock, .. } => ("change_lease", Some(lock.clone())),
        };
        let at = lock.map(|lock| lock.znode().clone());
        Self { what, at }
    }
}

fn first<T>(holders: &[(LockName, T)]) -> Option<LockName> {
    holders.first().map(|(lock, _)| lock.clone())
}

fn path(op: &Op) -> Option<ZPath> {
    match op {
        // The parent, because a sequential znode gets the number in its name only when the command is applied.
        Op::Create { path, .. } => Some(path.parent.clone()),
        Op::Delete { path, .. }
        | Op::DeleteRecursive { path }
        | Op::Set { path, .. }
        | Op::SetAcl { path, .. }
        | Op::Check { path, .. } => Some(path.clone()),
        Op::Held { lock, .. } => Some(lock.znode().clone()),
    }
}
