//! Permissions that each command needs. The lists have no wildcard, so a new command does not compile without a decision about its callers.
//! `apply/authorize.rs` decides whether a caller has the permissions.

use crate::model::access::command::AccessCommand;
use crate::model::access::right::{Right, Rights};
use crate::model::command::{Command, CreateMode, Op, Step};
use crate::model::ids::SessionId;
use crate::model::lock::LockCommand;
use crate::model::path::{CreatePath, LockName, ZPath};

/// Permission that a command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need<'c> {
    /// No right: the caller only has to be admitted.
    Admission,
    /// The caller is the cluster itself.
    Internal,
    /// A right at a path.
    Of(Right, &'c ZPath),
    /// One of several rights at a path.
    AnyOf(Rights, &'c ZPath),
    /// The right to administer everything.
    AdministerAll,
    /// The caller owns the session, or may administer everything.
    Session(SessionId),
    /// The caller owns the session, or may administer everything, or knows the password of the session and has no proven identity. The last case
    /// is for ZooKeeper clients, which connect first and authenticate later.
    Reconnect(SessionId),
    /// The right to write where the znode and its missing parents are created. For znodes that a ZooKeeper client creates to take a lock, the
    /// right to lock suffices.
    Create(Creation<'c>),
    /// The right to write at a znode. For an own contender the right to lock suffices.
    Change(&'c ZPath),
    /// The right to delete a znode. It needs the right to write there; for an own contender the right to lock suffices; for a contender of another
    /// session it is the right to break.
    Delete(&'c ZPath),
    /// The right to delete a znode and all below it.
    DeleteAll(&'c ZPath),
    /// The right to change an access control list. It needs the right to administer; for an own ephemeral znode the right to write suffices.
    ChangeAcl(&'c ZPath),
    /// The right to lock, or ownership of that contender: an owner can release a hold even after a change of the policies.
    Contender(&'c LockName, &'c str),
    /// Ownership of the lease that holds the lock, or the right to break the lock.
    HoldingLease(&'c LockName, SessionId),
    /// The need [`Need::Contender`] for at least one of several contenders. The others are skipped and not reported.
    SomeContender(&'c [(LockName, alloc::string::String)]),
}

/// Znode to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Creation<'c> {
    pub(crate) path: &'c CreatePath,
    pub(crate) mode: CreateMode,
    /// True if it has no data and an open list.
    pub(crate) is_plain: bool,
    /// True if it and its parents have an open list.
    pub(crate) is_open: bool,
    pub(crate) parents: bool,
}

/// Passes each need of a command to `check`, until one is not met. A transaction has one need for each operation, in their order.
pub(crate) fn check_needs<'c, E>(
    command: &'c Command,
    mut check: impl FnMut(Need<'c>) -> Result<(), E>,
) -> Result<(), E> {
    match command {
        // The secret of a lease is the right to it.
        Command::OpenSession { .. } | Command::RenewLease { .. } | Command::ReleaseLease { .. } => {
            check(Need::Admission)
        }
        Command::CloseSession { session } => check(Need::Session(*session)),
        Command::ExpireSessions { .. }
        | Command::Sweep(_)
        | Command::SetLimits(_)
        | Command::RecordSilence { .. }
        | Command::NoteHeartbeats { .. } => check(Need::Internal),
        Command::Write(op) => check(needed_by_op(op)),
        Command::Multi(ops) => ops.iter().map(needed_by_op).try_for_each(check),
        Command::Lock(step) => check_needs_of_lock(step, check),
        Command::Reconnect { session, password: _ } => check(Need::Reconnect(*session)),
        Command::InTurn { turn: _, step } => check_needs_in_turn(step, check),
        Command::Access(command) => check(needed_by_access(command)),
        // It bypasses access control lists, and the rules for znodes that only locks and sessions write.
        Command::Mirror(_) | Command::SetQuotas { .. } => check(Need::AdministerAll),
    }
}

/// Passes each need of a step in turn to `check`, as [`check_needs`] does. Only the session's own connection sends steps.
pub(crate) fn check_needs_in_turn<'c, E>(
    step: &'c Step,
    mut check: impl FnMut(Need<'c>) -> Result<(), E>,
) -> Result<(), E> {
    match step {
        Step::Write(op) => check(needed_by_op(op)),
        Step::Multi(ops) => ops.iter().map(needed_by_op).try_for_each(check),
        Step::CloseSession => check(Need::Admission),
    }
}

fn needed_by_op(op: &Op) -> Need<'_> {
    match op {
        Op::Create {
            path,
            data,
            acl,
            mode,
            parents,
        } => Need::Create(Creation {
            path,
            mode: *mode,
            is_plain: data.is_empty() && acl.is_open(),
            is_open: acl.is_open(),
            parents: *parents,
        }),
        Op::Delete { path, version: _ } => Need::Delete(path),
        Op::DeleteRecursive { path } => Need::DeleteAll(path),
        Op::Set {
            path,
            data: _,
            version: _,
        } => Need::Change(path),
        Op::SetAcl {
            path,
            acl: _,
            aversion: _,
        } => Need::ChangeAcl(path),
        // The check reveals whether the node exists and has this version.
        Op::Check { path, version: _ } => Need::Of(Right::Read, path),
        // The check reveals the holder, if only for the caller's own session.
        Op::Held {
            lock,
            fencing_token: _,
        } => Need::AnyOf(Rights::of([Right::Lock, Right::Read]), lock.znode()),
    }
}

fn check_needs_of_lock<'c, E>(
    step: &'c LockCommand,
    mut check: impl FnMut(Need<'c>) -> Result<(), E>,
) -> Result<(), E> {
    match step {
        LockCommand::Acquire { wish, .. } | LockCommand::AcquireBounded { wish, .. } => {
            check(Need::Of(Right::Lock, wish.lock.znode()))
        }
        LockCommand::AcquireMany { wishes, .. } => wishes
            .iter()
            .try_for_each(|wish| check(Need::Of(Right::Lock, wish.lock.znode()))),
        LockCommand::Upgrade { lock, .. } => check(Need::Of(Right::Lock, lock.znode())),
        LockCommand::Release { lock, holder }
        | LockCommand::Withdraw { lock, holder, .. }
        | LockCommand::Downgrade { lock, holder, .. }
        | LockCommand::AnswerRevoke { lock, holder, .. } => check(Need::Contender(lock, holder)),
        LockCommand::ReleaseMany { holders } | LockCommand::WithdrawMany { holders, .. } => {
            check(Need::SomeContender(holders))
        }
        LockCommand::Break { lock, .. } | LockCommand::Revoke { lock, .. } => {
            check(Need::Of(Right::Break, lock.znode()))
        }
        LockCommand::Configure { lock, .. } => check(Need::Of(Right::Administer, lock.znode())),
        LockCommand::CountDelays { .. } | LockCommand::EndHolds { .. } => check(Need::Internal),
        LockCommand::ChangeLease { lock, lease, .. } => {
            check(Need::Of(Right::Lock, lock.znode()))?;
            check(Need::HoldingLease(lock, *lease))
        }
    }
}

fn needed_by_access(command: &AccessCommand) -> Need<'static> {
    match command {
        // (`manage.rs` decides that only the operator secures an open state: in an open state no needs are checked.)
        AccessCommand::Secure { .. }
        | AccessCommand::CreateToken(_)
        | AccessCommand::RevokeToken(_)
        | AccessCommand::SetRole { .. }
        | AccessCommand::DeleteRole(_)
        | AccessCommand::MapCertificate { .. }
        | AccessCommand::UnmapCertificate(_) => Need::AdministerAll,
        AccessCommand::EndWaitsWithRights => Need::Internal,
    }
}
