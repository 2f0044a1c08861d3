//! Kinds of work: work that has to go on under any load, and work that can be rejected. The command alone decides the kind, before its
//! outcome is known.

use std::slice;

use znode_store::{Command, Identity, LeaseChange, LockCommand, MirrorStep, Op, Request, Step};

/// Estimated size of a command without its data, in bytes: its names, its envelope, and its record in the tables.
const COMMAND_BYTES: usize = 512;

/// Kind of work of a proposal. Each of the first two kinds has permits of its own, so that neither can use up the other's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Work {
    /// Work that releases something, or keeps what exists. It reduces the load, and other clients may wait for it.
    Keep,
    /// Work that requests something new. A rejected client has lost nothing and can retry.
    New,
    /// The cluster's own work. The number of its tasks bounds it, and it is never rejected.
    Own,
}

impl Work {
    /// Returns the kind of a request.
    pub fn of(request: &Request) -> Self {
        if request
            .caller
            .iter()
            .any(|identity| *identity == Identity::Internal)
        {
            return Self::Own;
        }
        match &request.command {
            Command::OpenSession { .. } => Self::New,
            // A client that reconnects keeps its session.
            Command::CloseSession { .. }
            | Command::Reconnect { .. }
            | Command::RenewLease { .. }
            | Command::ReleaseLease { .. } => Self::Keep,
            Command::ExpireSessions { .. }
            | Command::RecordSilence { .. }
            | Command::NoteHeartbeats { .. }
            | Command::Sweep(_)
            | Command::SetLimits(_) => Self::Own,
            Command::Write(op) => Self::of_op(op),
            Command::Multi(ops) => Self::of_ops(ops),
            Command::InTurn { step, .. } => Self::of_step(step),
            Command::Lock(command) => Self::of_lock(command),
            // An operator who revokes a client's access, or bounds it, must not have to wait for the end of that client's flood.
            Command::Access(_) | Command::SetQuotas { .. } => Self::Keep,
            // A client that writes a mirrored tree can wait and resend it.
            Command::Mirror(_) => Self::New,
        }
    }

    /// Returns the kind of a step of a connected client.
    fn of_step(step: &Step) -> Self {
        match step {
            Step::Write(op) => Self::of_op(op),
            Step::Multi(ops) => Self::of_ops(ops),
            Step::CloseSession => Self::Keep,
        }
    }

    fn of_ops(ops: &[Op]) -> Self {
        match ops.iter().all(|op| Self::of_op(op) == Self::Keep) {
            true => Self::Keep,
            false => Self::New,
        }
    }

    fn of_op(op: &Op) -> Self {
        match op {
            // ZooKeeper clients release their locks by a delete. A check in the same transaction changes nothing.
            Op::Delete { .. } | Op::Check { .. } | Op::Held { .. } => Self::Keep,
            // It may have to visit very many znodes.
            Op::DeleteRecursive { .. } => Self::New,
            Op::Create { .. } | Op::Set { .. } | Op::SetAcl { .. } => Self::New,
        }
    }

    fn of_lock(command: &LockCommand) -> Self {
        match command {
            LockCommand::Release { .. }
            | LockCommand::ReleaseMany { .. }
            | LockCommand::Withdraw { .. }
            | LockCommand::WithdrawMany { .. }
            | LockCommand::Downgrade { .. }
            | LockCommand::AnswerRevoke { .. } => Self::Keep,
            // The commands with which operators repair a lock.
            LockCommand::Break { .. } | LockCommand::Configure { .. } => Self::Keep,
            LockCommand::Acquire { .. }
            | LockCommand::AcquireBounded { .. }
            | LockCommand::AcquireMany { .. }
            | LockCommand::Upgrade { .. }
            | LockCommand::Revoke { .. } => Self::New,
            LockCommand::ChangeLease { change, .. } => match change {
                LeaseChange::Release
                | LeaseChange::ReleaseOwn
                | LeaseChange::Renew { .. }
                | LeaseChange::Rewrite { .. } => Self::Keep,
                LeaseChange::Replace { .. } => Self::New,
            },
            LockCommand::CountDelays { .. } | LockCommand::EndHolds { .. } => Self::Own,
        }
    }
}

/// Returns the estimated size of a request in flight, in bytes.
pub fn weight(request: &Request) -> usize {
    let Size { operations, data } = size(&request.command);
    operations * COMMAND_BYTES + data
}

/// Returns the size of the data that a request writes, in bytes.
pub fn written_bytes(request: &Request) -> usize {
    size(&request.command).data
}

/// Size of a command.
struct Size {
    operations: usize,
    /// Bytes of data that it writes.
    data: usize,
}

impl Size {
    /// Returns the size of operations without data.
    fn of(operations: usize) -> Self {
        Self { operations, data: 0 }
    }
}

fn size(command: &Command) -> Size {
    match command {
        Command::Write(op) => size_of_ops(slice::from_ref(op)),
        Command::Multi(ops) => size_of_ops(ops),
        Command::InTurn { step, .. } => match step {
            Step::Write(op) => size_of_ops(slice::from_ref(op)),
            Step::Multi(ops) => size_of_ops(ops),
            Step::CloseSession => Size::of(1),
        },
        Command::Lock(LockCommand::AcquireMany { wishes, .. }) => Size::of(wishes.len()),
        Command::Lock(LockCommand::ReleaseMany { holders } | LockCommand::WithdrawMany { holders, .. }) => {
            Size::of(holders.len())
        }
        Command::Mirror(steps) => Size {
            operations: steps.len(),
            data: steps.iter().map(data_of_mirror_step).sum(),
        },
        _ => Size::of(1),
    }
}

fn size_of_ops(ops: &[Op]) -> Size {
    Size {
        operations: ops.len(),
        data: ops.iter().map(data_of_op).sum(),
    }
}

fn data_of_op(op: &Op) -> usize {
    match op {
        Op::Create { data, .. } | Op::Set { data, .. } => data.len(),
        _ => 0,
    }
}

fn data_of_mirror_step(step: &MirrorStep) -> usize {
    match step {
        MirrorStep::Put(znode) => znode.data.len(),
        MirrorStep::Remove { .. } => 0,
    }
}

#[cfg(test)]
mod tests {
    use znode_store::{Identities, SessionId, ZPath, Zxid};

    use super::*;

    fn delete() -> Op {
        let path = ZPath::parse("/locks/a/b").unwrap();
        Op::Delete { path, version: -1 }
    }

    fn set(bytes: usize) -> Op {
        let path = ZPath::parse("/a").unwrap();
        let data = vec![0; bytes].into();
        Op::Set {
            path,
            data,
            version: -1,
        }
    }

    #[test]
    fn releases_are_maintenance_and_acquires_are_new_work() {
        let session = SessionId(1);
        for (command, work) in [
            (Command::CloseSession { session }, Work::Keep),
            (Command::Write(delete()), Work::Keep),
            (Command::Write(set(1)), Work::New),
            (Command::Multi(vec![delete(), delete()]), Work::Keep),
            // New work within work that keeps something counts as new.
            (Command::Multi(vec![delete(), set(1)]), Work::New),
            (
                Command::ExpireSessions {
                    sessions: vec![session],
                    term: 1,
                    as_of: Zxid(1),
                },
                Work::Own,
            ),
        ] {
            assert_eq!(
                Work::of(&Request::anonymous(command.clone())),
                work,
                "{command:?}"
            );
        }
        let own = Request {
            caller: Identities::internal(),
            ..Request::anonymous(Command::Write(set(1)))
        };
        assert_eq!(Work::of(&own), Work::Own);
    }

    #[test]
    fn weight_includes_the_data_of_each_operation() {
        let request = Request::anonymous(Command::Multi(vec![set(1000), set(5)]));
        assert_eq!(weight(&request), 1005 + 2 * COMMAND_BYTES);
        assert_eq!(written_bytes(&request), 1005);
        let request = Request::anonymous(Command::Multi(vec![delete(); 100]));
        assert_eq!(weight(&request), 100 * COMMAND_BYTES);
        assert_eq!(written_bytes(&request), 0, "many deletions are no large write");
    }
}
