//! Points of which there is one for each kind of command or question.

use std::io;

use znode_store::{Command, LockCommand, Op, Step};

use crate::peers::wire::Ask;
use fault_injection::fail_step;

/// A command is about to be applied. The state is locked.
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
        // No client of the runs asks for it, so none would get there.
        Command::Access(_)
        | Command::Mirror(_)
        | Command::RecordSilence { .. }
        | Command::NoteHeartbeats { .. } => {}
    }
}

fn locking(step: &LockCommand) {
    match step {
        LockCommand::Acquire { .. } => fail_step!("apply::before_acquire"),
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
    }
}

fn writing(op: &Op) {
    match op {
        Op::Create { .. } => fail_step!("apply::before_create"),
        Op::Delete { .. } => fail_step!("apply::before_delete"),
        Op::DeleteRecursive { .. } => fail_step!("apply::before_delete_recursive"),
        Op::Set { .. } => fail_step!("apply::before_set"),
        Op::SetAcl { .. } => fail_step!("apply::before_set_acl"),
        // Only within a multi.
        Op::Check { .. } | Op::Held { .. } => {}
    }
}

/// A question is about to be sent to a peer.
pub(crate) async fn asking(ask: &Ask) -> io::Result<()> {
    match ask {
        Ask::Vote(_) => fail_step!(async "vote::before_send", |error| error),
        Ask::PreVote(_) => fail_step!(async "pre_vote::before_send", |error| error),
        Ask::Append(_) => fail_step!(async "heartbeat::before_send", |error| error),
        Ask::TransferLeader { .. } => fail_step!(async "transfer::before_send", |error| error),
        Ask::Forward { .. } => fail_step!(async "forward::before_send", |error| error),
        Ask::Touch { .. } | Ask::Heartbeats { .. } => fail_step!(async "touch::before_send", |error| error),
        Ask::ReadIndex => fail_step!(async "read_index::before_send", |error| error),
        Ask::Disk { .. } => fail_step!(async "disk::before_send", |error| error),
        // Rarer than anything that a run could wait for.
        Ask::ChangeMembership(_) | Ask::Members | Ask::LeaderLost { .. } | Ask::Audit(_) => {}
    }
    Ok(())
}

/// A question of a peer has come and is about to be considered.
pub(crate) async fn asked(ask: &Ask) -> io::Result<()> {
    match ask {
        Ask::Vote(_) => fail_step!(async "vote::after_receive", |error| error),
        Ask::PreVote(_) => fail_step!(async "pre_vote::after_receive", |error| error),
        Ask::Append(_) => fail_step!(async "heartbeat::after_receive", |error| error),
        Ask::TransferLeader { .. } => fail_step!(async "transfer::after_receive", |error| error),
        Ask::Forward { .. } => fail_step!(async "forward::after_receive", |error| error),
        Ask::Touch { .. } | Ask::Heartbeats { .. } => fail_step!(async "touch::after_receive", |error| error),
        Ask::ReadIndex => fail_step!(async "read_index::after_receive", |error| error),
        Ask::Disk { .. } => fail_step!(async "disk::after_receive", |error| error),
        Ask::ChangeMembership(_) | Ask::Members | Ask::LeaderLost { .. } | Ask::Audit(_) => {}
    }
    Ok(())
}
