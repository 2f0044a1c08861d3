//! Fail points of the apply loop, one for each kind of command.

use znode_store::{Command, LockCommand, Op, Step};

use fault_injection::fail_step;

/// Runs the fail point of a command that is about to be applied. The state is locked.
pub(crate) fn applying(command: &Command) {
    match command {
        Command::OpenSession { .. } => fail_step!("apply::before_open_session"),
        Command::CloseSession { .. }
        | Command::InTurn {
            step: Step::CloseSession,
            ..
        } => fail_step!("apply::before_close_session"),
        Command::ExpireSessions { .. } => fail_step!("apply::before_expire_sessions"),
        Command::Write(op)
        | Command::InTurn {
            step: Step::Write(op),
            ..
        } => writing(op),
        Command::Multi(_)
        | Command::InTurn {
            step: Step::Multi(_), ..
        } => fail_step!("apply::before_multi"),
        Command::Sweep(_) => fail_step!("apply::before_sweep"),
        Command::SetLimits(_) => fail_step!("apply::before_set_limits"),
        Command::Lock(step) => locking(step),
        Command::Reconnect { .. } => fail_step!("apply::before_reconnect"),
        // No client of the fault runs sends these commands, so their fail points would never be reached.
        Command::Access(_)
        | Command::Mirror(_)
        | Command::RecordSilence { .. }
        | Command::SetQuotas { .. }
        | Command::NoteHeartbeats { .. } => {}
        Command::RenewLease { .. } => fail_step!("apply::before_renew_lease"),
        Command::ReleaseLease { .. } => fail_step!("apply::before_release_lease"),
    }
}

fn locking(step: &LockCommand) {
    match step {
        LockCommand::Acquire { .. } | LockCommand::AcquireBounded { .. } => {
            fail_step!("apply::before_acquire")
        }
        LockCommand::Release { .. } => fail_step!("apply::before_release"),
        LockCommand::Withdraw { .. } => fail_step!("apply::before_withdraw"),
        LockCommand::Break { .. } => fail_step!("apply::before_break"),
        LockCommand::Downgrade { .. } => fail_step!("apply::before_downgrade"),
        LockCommand::Upgrade { .. } => fail_step!("apply::before_upgrade"),
        LockCommand::AcquireMany { .. } => fail_step!("apply::before_acquire_many"),
        LockCommand::ReleaseMany { .. } => fail_step!("apply::before_release_many"),
        LockCommand::WithdrawMany { .. } => fail_step!("apply::before_withdraw_many"),
        LockCommand::Configure { .. } => fail_step!("apply::before_configure"),
        LockCommand::Revoke { .. } => fail_step!("apply::before_revoke"),
        LockCommand::AnswerRevoke { .. } => fail_step!("apply::before_answer_revoke"),
        LockCommand::CountDelays { .. } => fail_step!("apply::before_count_delays"),
        LockCommand::EndHolds { .. } => fail_step!("apply::before_end_holds"),
        // Only Redis clients send it, which are no clients of the runs.
        LockCommand::ChangeLease { .. } => {}
    }
}

fn writing(op: &Op) {
    match op {
        Op::Create { .. } => fail_step!("apply::before_create"),
        Op::Delete { .. } => fail_step!("apply::before_delete"),
        Op::DeleteRecursive { .. } => fail_step!("apply::before_delete_recursive"),
        Op::Set { .. } => fail_step!("apply::before_set"),
        Op::SetAcl { .. } => fail_step!("apply::before_set_acl"),
        // These occur only within a multi.
        Op::Check { .. } | Op::Held { .. } => {}
    }
}
