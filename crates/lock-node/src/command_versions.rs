//! Versions of the commands: which version added each kind of command, and by which rules members apply it. The rules for changes of formats
//! are in `docs/internals/format.md`, "Upgrading".

use znode_store::{
    AccessCommand, Command, Data, Identity, LockCommand, MirrorStep, Op, Request, Rules, Step, ZPath,
};

use raft_node::versions::OLDEST_COMMANDS_VERSION;

/// Newest version of the commands that this program can apply.
pub const COMMANDS_VERSION: u8 = 5;

/// Version of the commands that added null data. Earlier versions store null as empty data.
const NULL_DATA: u8 = 3;

/// Version of the commands that added long paths: see [`ZPath::is_short`]. Earlier versions refuse them, or cannot decode
/// them.
pub const LONG_PATHS: u8 = 3;

/// Version of the commands that added [`Command::Mirror`].
const MIRROR: u8 = 2;

/// Version of the commands that added [`Command::RecordSilence`] and [`Command::NoteHeartbeats`].
pub const RECORDS_SINCE: u8 = 3;

/// Version of the commands that added [`AccessCommand::EndWaitsWithRights`].
pub const WAITS_END_WITH_RIGHTS: u8 = 3;

/// Version of the commands that added leases and bounds of holds: [`LockCommand::AcquireBounded`], [`LockCommand::EndHolds`],
/// [`LockCommand::ChangeLease`], [`Command::RenewLease`] and [`Command::ReleaseLease`].
pub const LEASES: u8 = 4;

/// Version of the commands that added [`Command::SetQuotas`].
const NAMESPACES: u8 = 5;

/// Version of the commands that introduced [`Rules::Current`]. A command whose envelope names this version, or a later one, is applied by them.
const BOUNDED_WORK: u8 = 3;

/// Returns the version that added a kind of command, or changed its meaning. A new kind belongs to the next version. The number of a kind never
/// changes afterwards.
pub fn since(command: &Command) -> u8 {
    match command {
        Command::OpenSession { .. }
        | Command::CloseSession { .. }
        | Command::ExpireSessions { .. }
        | Command::SetLimits(_)
        | Command::Reconnect { .. }
        | Command::Access(
            AccessCommand::Secure { anonymous: None, .. }
            | AccessCommand::CreateToken(_)
            | AccessCommand::RevokeToken(_)
            | AccessCommand::DeleteRole(_)
            | AccessCommand::MapCertificate { .. }
            | AccessCommand::UnmapCertificate(_),
        )
        | Command::InTurn {
            step: Step::CloseSession,
            ..
        } => 1,
        Command::Sweep(paths) => since_paths(paths.iter()),
        Command::Access(
            AccessCommand::Secure {
                anonymous: Some(grants),
                ..
            }
            | AccessCommand::SetRole { grants, .. },
        ) => since_paths(grants.iter().map(|grant| &grant.prefix)),
        Command::Access(AccessCommand::EndWaitsWithRights) => WAITS_END_WITH_RIGHTS,
        Command::Mirror(steps) => steps.iter().map(since_step).max().unwrap_or(MIRROR),
        Command::RecordSilence { .. } | Command::NoteHeartbeats { .. } => RECORDS_SINCE,
        Command::SetQuotas { .. } => NAMESPACES,
        Command::RenewLease { .. }
        | Command::ReleaseLease { .. }
        | Command::Lock(
            LockCommand::AcquireBounded { .. }
            | LockCommand::EndHolds { .. }
            | LockCommand::ChangeLease { .. },
        ) => LEASES,
        Command::Write(op)
        | Command::InTurn {
            step: Step::Write(op),
            ..
        } => since_op(op),
        Command::Multi(ops)
        | Command::InTurn {
            step: Step::Multi(ops),
            ..
        } => ops.iter().map(since_op).max().unwrap_or(OLDEST_COMMANDS_VERSION),
        Command::Lock(
            LockCommand::Acquire { .. }
            | LockCommand::Release { .. }
            | LockCommand::Withdraw { .. }
            | LockCommand::Break { .. }
            | LockCommand::Downgrade { .. }
            | LockCommand::Upgrade { .. }
            | LockCommand::AcquireMany { .. }
            | LockCommand::ReleaseMany { .. }
            | LockCommand::WithdrawMany { .. }
            | LockCommand::Configure { .. }
            | LockCommand::Revoke { .. }
            | LockCommand::AnswerRevoke { .. }
            | LockCommand::CountDelays { .. },
        ) => 1,
    }
}

fn since_paths<'p>(mut paths: impl Iterator<Item = &'p ZPath>) -> u8 {
    match paths.all(ZPath::is_short) {
        true => OLDEST_COMMANDS_VERSION,
        false => LONG_PATHS,
    }
}

fn since_op(op: &Op) -> u8 {
    match op {
        op if !op.is_short() => LONG_PATHS,
        Op::Create { data, .. } | Op::Set { data, .. } if data.is_null() => NULL_DATA,
        Op::Create { .. }
        | Op::Delete { .. }
        | Op::DeleteRecursive { .. }
        | Op::Set { .. }
        | Op::SetAcl { .. }
        | Op::Check { .. }
        | Op::Held { .. } => 1,
    }
}

fn since_step(step: &MirrorStep) -> u8 {
    match step {
        step if !step.path().is_short() => LONG_PATHS,
        MirrorStep::Put(znode) if znode.data.is_null() => NULL_DATA,
        MirrorStep::Put(_) | MirrorStep::Remove { .. } => MIRROR,
    }
}

/// Returns the rules by which all members apply a command whose envelope names this version.
pub fn rules(version: u8) -> Rules {
    match version >= BOUNDED_WORK {
        true => Rules::Current,
        false => Rules::Former,
    }
}

/// Returns the version that the envelope of a request names. Usually that is the version that added its kind of command. If the meaning of the
/// command depends on the rules, and all members are `known` to have the current ones, it is the version that introduced these.
pub fn of_envelope(request: &Request, known: impl FnOnce() -> u8) -> u8 {
    let since = since(&request.command);
    match since < BOUNDED_WORK && depends_on_rules(request) && known() >= BOUNDED_WORK {
        true => BOUNDED_WORK,
        false => since,
    }
}

/// Returns whether the rules decide the effect of a request. That is so if it ends sessions, creates znodes or deletes many, is a transaction, has a
/// request id without a session, or names a session that may belong to another caller.
fn depends_on_rules(request: &Request) -> bool {
    let is_remembered = request.session.is_none() && request.request_id.is_some();
    let ends_sessions = matches!(
        request.command,
        Command::CloseSession { .. }
            | Command::ExpireSessions { .. }
            | Command::InTurn {
                step: Step::CloseSession,
                ..
            }
    );
    let changes_znodes = matches!(
        request.command,
        Command::Write(Op::Create { .. } | Op::DeleteRecursive { .. })
            | Command::Multi(_)
            | Command::InTurn {
                step: Step::Write(Op::Create { .. }) | Step::Multi(_),
                ..
            }
    );
    let is_somebody = |identity: &Identity| matches!(identity, Identity::Token(_) | Identity::X509(_));
    let may_claim = request.session.is_some() && request.caller.iter().any(is_somebody);
    is_remembered || ends_sessions || changes_znodes || may_claim
}

/// Replaces null data by empty data unless all members are `known` to apply null. ZooKeeper clients write null data, and must continue to work while
/// a cluster is upgraded. A command without an older form stays as it is, and the leader rejects it.
pub fn restrain(request: &mut Request, known: impl FnOnce() -> u8) {
    if since(&request.command) < NULL_DATA || known() >= NULL_DATA {
        return;
    }
    match &mut request.command {
        Command::Write(op)
        | Command::InTurn {
            step: Step::Write(op),
            ..
        } => no_null(op),
        Command::Multi(ops)
        | Command::InTurn {
            step: Step::Multi(ops),
            ..
        } => ops.iter_mut().for_each(no_null),
        Command::Mirror(steps) => {
            for step in steps {
                if let MirrorStep::Put(znode) = step
                    && znode.data.is_null()
                {
                    znode.data = Data::empty();
                }
            }
        }
        _ => {}
    }
}

fn no_null(op: &mut Op) {
    if let Op::Create { data, .. } | Op::Set { data, .. } = op
        && data.is_null()
    {
        *data = Data::empty();
    }
}

#[cfg(test)]
mod tests {
    use znode_store::{
        Acl, CreateMode, CreatePath, Mirrored, MirroredKind, PathGrant, RequestId, Right, Rights, RoleName,
        SHORT_PATH_BYTES, SHORT_PATH_DEPTH, SessionId, Turn, Zxid,
    };

    use super::*;

    fn with(data: Data) -> [Request; 3] {
        let create = Op::Create {
            path: CreatePath::parse("/a", false).unwrap(),
            data: data.clone(),
            acl: Acl::open(),
            mode: CreateMode::Persistent,
            parents: false,
        };
        let set = Op::Set {
            path: ZPath::root(),
            data,
            version: -1,
        };
        let turn = Turn {
            since: Zxid(1),
            number: 0,
        };
        let step = Step::Write(set.clone());
        [
            Command::Write(create.clone()),
            Command::Multi(vec![set, create]),
            Command::InTurn { turn, step },
        ]
        .map(Request::anonymous)
    }

    #[test]
    fn commands_are_applied_by_the_current_rules_when_all_members_know_them() {
        let close = Request::anonymous(Command::CloseSession {
            session: SessionId(7),
        });
        assert_eq!(of_envelope(&close, || BOUNDED_WORK - 1), 1);
        assert_eq!(of_envelope(&close, || BOUNDED_WORK), BOUNDED_WORK);
        let sweep = Request::internal(Command::Sweep(Vec::new()));
        assert_eq!(of_envelope(&sweep, || unreachable!("it has one meaning")), 1);
        let remembered = Request {
            request_id: Some(RequestId::parse("a").unwrap()),
            ..sweep
        };
        assert_eq!(of_envelope(&remembered, || BOUNDED_WORK), BOUNDED_WORK);
        let [create, transaction, set_in_turn] = with(Data::empty());
        for request in [create, transaction] {
            assert_eq!(
                of_envelope(&request, || BOUNDED_WORK),
                BOUNDED_WORK,
                "{request:?}"
            );
        }
        let known = || unreachable!("it has one meaning");
        assert_eq!(of_envelope(&set_in_turn, known), 1);
        assert_eq!((rules(2), rules(3)), (Rules::Former, Rules::Current));
    }

    #[test]
    fn null_data_becomes_empty_until_all_members_know_it() {
        for ((null, empty), bytes) in with(Data::null())
            .into_iter()
            .zip(with(Data::empty()))
            .zip(with("x".into()))
        {
            assert_eq!(since(&null.command), NULL_DATA);
            assert_eq!(since(&empty.command), 1);
            let mut restrained = null.clone();
            restrain(&mut restrained, || NULL_DATA - 1);
            assert_eq!(restrained, empty);
            let mut as_it_is = null.clone();
            restrain(&mut as_it_is, || NULL_DATA);
            assert_eq!(as_it_is, null);
            let mut others = bytes.clone();
            restrain(&mut others, || unreachable!("an old command needs no check"));
            assert_eq!(others, bytes);
        }
    }

    /// Returns one command of each kind that names paths, all with this path.
    fn at(path: &str) -> Vec<Command> {
        let path = ZPath::parse(path).unwrap();
        let create = Op::Create {
            path: CreatePath {
                parent: path.parent().unwrap(),
                name: path.name().into(),
            },
            data: Data::empty(),
            acl: Acl::open(),
            mode: CreateMode::Persistent,
            parents: false,
        };
        let ops = [
            create,
            Op::Delete {
                path: path.clone(),
                version: -1,
            },
            Op::DeleteRecursive { path: path.clone() },
            Op::Set {
                path: path.clone(),
                data: Data::empty(),
                version: -1,
            },
            Op::SetAcl {
                path: path.clone(),
                acl: Acl::open(),
                aversion: -1,
            },
            Op::Check {
                path: path.clone(),
                version: -1,
            },
        ];
        let turn = Turn {
            since: Zxid(1),
            number: 0,
        };
        let of_op = |op: Op| {
            let multi = vec![
                Op::Check {
                    path: ZPath::root(),
                    version: -1,
                },
                op.clone(),
            ];
            [
                Command::InTurn {
                    turn,
                    step: Step::Multi(multi.clone()),
                },
                Command::Multi(multi),
                Command::Write(op),
            ]
        };
        let role = AccessCommand::SetRole {
            role: RoleName::parse("role").unwrap(),
            grants: vec![PathGrant {
                prefix: path.clone(),
                rights: Rights::of([Right::Read]),
            }],
        };
        let others = [Command::Sweep(vec![ZPath::root(), path]), Command::Access(role)];
        ops.into_iter().flat_map(of_op).chain(others).collect()
    }

    #[test]
    fn commands_with_long_paths_name_the_version_that_added_them() {
        let deep = "/a".repeat(SHORT_PATH_DEPTH);
        let long = format!("/{}", "a".repeat(SHORT_PATH_BYTES - 1));
        for short in ["/a", &deep, &long] {
            let versions = at(short).iter().map(since).max();
            assert_eq!(versions, Some(OLDEST_COMMANDS_VERSION), "{short}");
        }
        for path in [format!("{deep}/a"), format!("{long}a")] {
            for command in at(&path) {
                assert_eq!(since(&command), LONG_PATHS, "{command}");
            }
        }
        // The digits of a sequential name count, because all members must create the same name or refuse it.
        for (name, version) in [
            (&long[..SHORT_PATH_BYTES - 10], 1),
            (&long[..SHORT_PATH_BYTES - 9], LONG_PATHS),
        ] {
            let create = Op::Create {
                path: CreatePath::parse(name, true).unwrap(),
                data: Data::empty(),
                acl: Acl::open(),
                mode: CreateMode::PersistentSequential,
                parents: false,
            };
            assert_eq!(since(&Command::Write(create)), version);
        }
        let put = |path: &str| {
            Command::Mirror(vec![MirrorStep::Put(Mirrored {
                path: ZPath::parse(path).unwrap(),
                data: Data::empty(),
                acl: Acl::open(),
                kind: MirroredKind::Persistent,
                version: 0,
                aversion: 0,
                ctime_ms: 0,
                mtime_ms: 0,
                creations: 0,
            })])
        };
        assert_eq!(
            (since(&put(&deep)), since(&put(&format!("{deep}/a")))),
            (MIRROR, LONG_PATHS)
        );
    }
}
