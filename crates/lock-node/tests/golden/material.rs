//! Contents of the golden files: one command of each kind, and the membership.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use znode_store::{
    AccessCommand, Acl, AclEntry, AttemptId, Command, CreateMode, CreatePath, Data, Downgraded, HoldBounds,
    Identities, Identity, LeaseChange, LeaseKey, Limits, LockCommand, LockMode, LockName, LockWish,
    MirrorStep, Mirrored, MirroredKind, NEVER_ENDS_MS, NamespaceName, NewLease, NewToken, Op, Password,
    PathGrant, Perms, Quotas, Request, RequestId, Right, Rights, RoleName, SessionId, Step, TokenHash,
    TokenId, Turn, WithdrawCause, ZPath, Zxid,
};

use crate::envelope::{Envelope, Origin};
use raft_node::codec::{self};
use raft_node::command_batch::CommandBatch;
use raft_node::fuzz::Membership;
use raft_node::ids::MemberAddress;
use raft_node::ids::{DiskId, Member};

pub const TIME_MS: u64 = 1_700_000_000_000;
pub const CLUSTER: &str = "golden";
pub const CLUSTER_ID: [u8; 16] = [0xc1; 16];
pub const DISK_ID: [u8; 16] = [0xd1; 16];

pub fn member(n: u8) -> Member {
    let address = MemberAddress {
        peer: format!("127.0.0.1:750{n}"),
        http: format!("127.0.0.1:740{n}"),
    };
    let disk = if n == 1 { DISK_ID } else { [n; 16] };
    Member {
        address,
        disk: DiskId(disk),
    }
}

/// Membership of node 1 alone.
pub fn alone() -> Membership {
    Membership::new(vec![BTreeSet::from([1])], BTreeMap::from([(1, member(1))])).unwrap()
}

fn path(text: &str) -> ZPath {
    ZPath::parse(text).unwrap()
}

fn lock(text: &str) -> LockName {
    LockName::parse(text).unwrap()
}

fn acl() -> Acl {
    Acl::new(vec![AclEntry {
        perms: Perms::READ,
        scheme: "ip".into(),
        id: "10.0.0.0/8".into(),
    }])
}

fn create(text: &str, data: &str, mode: CreateMode) -> Op {
    Op::Create {
        path: CreatePath::parse(text, mode.is_sequential()).unwrap(),
        data: data.into(),
        acl: Acl::open(),
        mode,
        parents: true,
    }
}

fn open_session(n: u64) -> Command {
    Command::OpenSession {
        session: SessionId(n),
        password: Password([n as u8; 16]),
        timeout_ms: 3_600_000,
        name: "worker".into(),
        address: "10.0.0.7:1234".into(),
    }
}

fn wish(name: &str, mode: LockMode, permits: u32) -> LockWish {
    LockWish {
        lock: lock(name),
        mode,
        permits,
        owner: "thread-1".into(),
        reentrant: true,
        note: "nightly run".into(),
        address: "10.0.0.7".into(),
        lock_delay_ms: 15_000,
        names: Default::default(),
    }
}

fn guid(n: u64) -> u128 {
    0x0123_4567_89ab_cdef_0123_4567_89ab_0000 + u128::from(n)
}

fn acquire(n: u64, name: &str, mode: LockMode, permits: u32) -> Command {
    Command::Lock(LockCommand::Acquire {
        wish: wish(name, mode, permits),
        guid: guid(n),
        attempt: AttemptId(n),
        wait: true,
    })
}

fn holder(n: u64, number: u32) -> String {
    format!("_c_0123456789abcdef0123456789ab{n:04x}-lock-{number:010}")
}

/// Returns a named request of each kind, in an order in which all succeed.
pub fn requests() -> Vec<(&'static str, Request)> {
    let of = |session: Option<u64>, command| Request {
        session: session.map(SessionId),
        request_id: None,
        caller: Identities::none(),
        command,
    };
    let write = |op| of(None, Command::Write(op));
    let in_turn = |number, step| {
        let since = Zxid(40);
        let turn = Turn { since, number };
        of(Some(1), Command::InTurn { turn, step })
    };
    let step = |session, step| of(session, Command::Lock(step));
    let mut identified = of(
        Some(1),
        Command::Write(create("/ids/one", "", CreateMode::Persistent)),
    );
    identified.request_id = Some(RequestId::parse("order-17").unwrap());
    identified.caller = Identities::new([Identity::Ip([10, 0, 0, 7].into())]);
    let mut requests = vec![
        ("set_limits", of(None, Command::SetLimits(Limits::default()))),
        ("open_session", of(None, open_session(1))),
        ("open_session_2", of(None, open_session(2))),
        ("open_session_3", of(None, open_session(3))),
        (
            "create",
            write(create("/app/config", "x=1", CreateMode::Persistent)),
        ),
        (
            "create_ephemeral",
            of(
                Some(1),
                Command::Write(create("/app/alive", "", CreateMode::Ephemeral)),
            ),
        ),
        (
            "create_sequential",
            write(create("/queue/n-", "job", CreateMode::PersistentSequential)),
        ),
        (
            "create_container",
            write(create("/box", "", CreateMode::Container)),
        ),
        (
            "create_ttl",
            write(create(
                "/soon",
                "",
                CreateMode::Ttl {
                    ttl_ms: 9_000_000_000,
                },
            )),
        ),
        ("identified", identified),
        (
            "set",
            write(Op::Set {
                path: path("/app/config"),
                data: "x=2".into(),
                version: 0,
            }),
        ),
        (
            "set_acl",
            write(Op::SetAcl {
                path: path("/app/config"),
                acl: acl(),
                aversion: -1,
            }),
        ),
        (
            "acquire",
            of(Some(1), acquire(1, "orders/42", LockMode::Exclusive, 1)),
        ),
        (
            "acquire_queued",
            of(Some(2), acquire(2, "orders/42", LockMode::Shared, 1)),
        ),
        (
            "acquire_semaphore",
            of(Some(2), acquire(3, "pool", LockMode::Semaphore { limit: 3 }, 2)),
        ),
        (
            "multi",
            of(
                Some(1),
                Command::Multi(vec![
                    Op::Check {
                        path: path("/app"),
                        version: -1,
                    },
                    Op::Held {
                        lock: lock("orders/42"),
                        fencing_token: Zxid(13),
                    },
                    create("/app/guarded", "y", CreateMode::Persistent),
                ]),
            ),
        ),
        (
            "withdraw",
            of(
                Some(2),
                Command::Lock(LockCommand::Withdraw {
                    lock: lock("orders/42"),
                    holder: holder(2, 1).replace("-lock-", "-__READ__"),
                    attempt: AttemptId(2),
                    cause: WithdrawCause::TimedOut,
                }),
            ),
        ),
        (
            "release",
            of(
                Some(1),
                Command::Lock(LockCommand::Release {
                    lock: lock("orders/42"),
                    holder: holder(1, 0),
                }),
            ),
        ),
        (
            "acquire_again",
            of(Some(1), acquire(4, "orders/42", LockMode::Exclusive, 1)),
        ),
        (
            "break",
            of(
                None,
                Command::Lock(LockCommand::Break {
                    lock: lock("orders/43"),
                    holder: holder(4, 2),
                    by: "10.0.0.9".into(),
                    reason: "stuck".into(),
                }),
            ),
        ),
        (
            "delete",
            write(Op::Delete {
                path: path("/queue/n-0000000000"),
                version: -1,
            }),
        ),
        (
            "delete_recursive",
            write(Op::DeleteRecursive { path: path("/ids") }),
        ),
        ("sweep", of(None, Command::Sweep(vec![path("/queue")]))),
        (
            "close_session",
            of(
                None,
                Command::CloseSession {
                    session: SessionId(2),
                },
            ),
        ),
        (
            "expire_sessions",
            of(
                None,
                Command::ExpireSessions {
                    sessions: vec![SessionId(3)],
                    term: 1,
                    as_of: Zxid(5),
                },
            ),
        ),
        (
            "downgrade",
            step(
                Some(1),
                LockCommand::Downgrade {
                    lock: lock("orders/42"),
                    holder: holder(4, 2),
                    to: Downgraded::Upgradeable,
                },
            ),
        ),
        (
            "upgrade",
            step(
                Some(1),
                LockCommand::Upgrade {
                    lock: lock("orders/42"),
                    holder: holder(4, 2),
                    attempt: AttemptId(5),
                    wait: true,
                },
            ),
        ),
        (
            "acquire_many",
            step(
                Some(1),
                LockCommand::AcquireMany {
                    wishes: vec![
                        wish("many/a", LockMode::Exclusive, 1),
                        wish("many/b", LockMode::Upgradeable, 1),
                        wish("pool", LockMode::Semaphore { limit: 3 }, 2),
                    ],
                    guid: guid(0x60),
                    attempt: AttemptId(6),
                    wait: true,
                },
            ),
        ),
        (
            "release_many",
            step(
                Some(1),
                LockCommand::ReleaseMany {
                    holders: vec![(lock("many/a"), holder(0x60, 0))],
                },
            ),
        ),
        (
            "withdraw_many",
            step(
                Some(1),
                LockCommand::WithdrawMany {
                    holders: vec![(lock("many/b"), holder(0x61, 0))],
                    attempt: AttemptId(6),
                    cause: WithdrawCause::Abandoned,
                },
            ),
        ),
        (
            "configure",
            step(
                None,
                LockCommand::Configure {
                    lock: lock("pool"),
                    limit: Some(Some(5)),
                    draining: Some(true),
                },
            ),
        ),
        (
            "revoke",
            step(
                None,
                LockCommand::Revoke {
                    lock: lock("orders/42"),
                    holder: None,
                    by: "10.0.0.9".into(),
                    reason: "maintenance".into(),
                },
            ),
        ),
        (
            "answer_revoke",
            step(
                Some(1),
                LockCommand::AnswerRevoke {
                    lock: lock("orders/42"),
                    holder: holder(4, 2),
                    answer: "in a minute".into(),
                },
            ),
        ),
        (
            "count_delays",
            step(
                None,
                LockCommand::CountDelays {
                    locks: vec![(lock("orders/42"), Zxid(17), 15_000)],
                    term: 1,
                },
            ),
        ),
        (
            "reconnect",
            of(
                Some(1),
                Command::Reconnect {
                    session: SessionId(1),
                    password: Password([1; 16]),
                },
            ),
        ),
        (
            "set_in_turn",
            in_turn(
                0,
                Step::Write(Op::Set {
                    path: path("/a"),
                    data: "in turn".into(),
                    version: -1,
                }),
            ),
        ),
        (
            "multi_in_turn",
            in_turn(
                1,
                Step::Multi(vec![Op::Check {
                    path: path("/a"),
                    version: -1,
                }]),
            ),
        ),
        ("close_session_in_turn", in_turn(2, Step::CloseSession)),
    ];
    requests.extend(access());
    requests
}

/// Requests that secure the cluster, and requests that need permissions from then on.
fn access() -> Vec<(&'static str, Request)> {
    let by = |identity, command| Request {
        caller: Identities::new([identity]),
        ..Request::anonymous(command)
    };
    let role = || RoleName::parse("workers").unwrap();
    let admin = TokenId([0xad; 16]);
    let asked = |command| by(Identity::Token(admin), Command::Access(command));
    let rights = Rights::of([Right::Read, Right::Lock]);
    let grant = |text: &str, rights| PathGrant {
        prefix: path(text),
        rights,
    };
    let token = |n: u8, expires_at_ms| {
        AccessCommand::CreateToken(NewToken {
            id: TokenId([n; 16]),
            hash: TokenHash([n; 32]),
            role: role(),
            description: "nightly run".into(),
            expires_at_ms,
        })
    };
    let secure = AccessCommand::Secure {
        token: admin,
        hash: TokenHash([0xad; 32]),
        description: "the first administrator".into(),
        anonymous: Some(vec![grant("/public", Rights::of([Right::Read]))]),
    };
    let set_role = AccessCommand::SetRole {
        role: role(),
        grants: vec![grant("/locks/orders", rights), grant("/app", Rights::ALL)],
    };
    let certificate = |text: &str| AccessCommand::MapCertificate {
        certificate: text.into(),
        role: role(),
    };
    let spare = AccessCommand::SetRole {
        role: RoleName::parse("spare").unwrap(),
        grants: vec![],
    };
    vec![
        ("secure", by(Identity::Super, Command::Access(secure))),
        ("set_role", asked(set_role)),
        ("create_token", asked(token(1, None))),
        (
            "create_token_that_expires",
            asked(token(2, Some(TIME_MS + 3_600_000))),
        ),
        (
            "revoke_token",
            asked(AccessCommand::RevokeToken(TokenId([2; 16]))),
        ),
        ("map_certificate", asked(certificate("CN=worker"))),
        ("map_certificate_2", asked(certificate("CN=other"))),
        (
            "unmap_certificate",
            asked(AccessCommand::UnmapCertificate("CN=other".into())),
        ),
        ("set_role_2", asked(spare)),
        (
            "delete_role",
            asked(AccessCommand::DeleteRole(RoleName::parse("spare").unwrap())),
        ),
        (
            "open_session_with_token",
            by(Identity::Token(TokenId([1; 16])), open_session(4)),
        ),
        ("internal", Request::internal(Command::Sweep(vec![path("/box")]))),
    ]
}

/// Returns commands that are newer than the golden data directory, whose files stay as they are.
pub fn later_requests() -> Vec<(&'static str, Request)> {
    let put = |text: &str, kind| {
        MirrorStep::Put(Mirrored {
            path: path(text),
            data: Data::from("copied"),
            acl: acl(),
            kind,
            version: 7,
            aversion: 2,
            ctime_ms: TIME_MS,
            mtime_ms: TIME_MS + 1,
            creations: 4_711,
        })
    };
    let steps = vec![
        put("/copy", MirroredKind::Persistent),
        put("/copy/box", MirroredKind::Container),
        put("/copy/soon", MirroredKind::Ttl(60_000)),
        MirrorStep::Remove {
            path: path("/copy/old"),
        },
    ];
    let null = |mut step| {
        if let MirrorStep::Put(znode) = &mut step {
            znode.data = Data::null();
        }
        step
    };
    let create_null = match create("/null", "", CreateMode::PersistentSequential) {
        Op::Create {
            path,
            acl,
            mode,
            parents,
            data: _,
        } => Op::Create {
            path,
            data: Data::null(),
            acl,
            mode,
            parents,
        },
        other => other,
    };
    let set_null = Op::Set {
        path: path("/a"),
        data: Data::null(),
        version: 3,
    };
    let mirror_null = vec![
        null(put("/copy/null", MirroredKind::Persistent)),
        put("/copy/other", MirroredKind::Persistent),
    ];
    let silence = Command::RecordSilence {
        sessions: vec![(SessionId(1), 5_000), (SessionId(u64::MAX >> 1), 70_000)],
        term: 7,
        as_of: Zxid(300),
    };
    let heartbeats = Command::NoteHeartbeats {
        sessions: vec![SessionId(1), SessionId(u64::MAX >> 1)],
        term: 7,
    };
    let lease = LeaseKey {
        session: SessionId(9),
        password: Password([9; 16]),
    };
    let bounded = LockCommand::AcquireBounded {
        wish: wish("leased", LockMode::Exclusive, 1),
        guid: guid(9),
        attempt: AttemptId(9),
        wait: true,
        bounds: HoldBounds {
            min_ms: 30_000,
            max_ms: 600_000,
        },
        lease: Some(NewLease {
            key: lease,
            timeout_ms: 86_400_000,
        }),
    };
    let end_holds = LockCommand::EndHolds {
        holders: vec![(lock("leased"), holder(9, 0))],
        term: 7,
    };
    let renew = Command::RenewLease {
        lease,
        timeout_ms: 60_000,
    };
    let change = |change| {
        let change = LockCommand::ChangeLease {
            lock: lock("leased"),
            lease: SessionId(9),
            change,
        };
        Request::anonymous(Command::Lock(change))
    };
    let replace = LeaseChange::Replace {
        note: "note".into(),
        address: "192.0.2.1:5".into(),
        guid: guid(10),
        attempt: AttemptId(10),
        new: NewLease {
            key: lease,
            timeout_ms: NEVER_ENDS_MS,
        },
    };
    let quotas = |quotas| {
        Request::anonymous(Command::SetQuotas {
            namespace: NamespaceName::parse("billing").unwrap(),
            quotas,
        })
    };
    let all_quotas = Quotas {
        sessions: Some(100),
        locks: Some(1_000),
        znodes: Some(20_000),
        bytes: Some(50_000_000),
        requests_per_second: Some(500),
    };
    let one_quota = Quotas {
        locks: Some(0),
        ..Quotas::default()
    };
    vec![
        ("mirror", Request::anonymous(Command::Mirror(steps))),
        (
            "create_null",
            Request::anonymous(Command::Write(create_null.clone())),
        ),
        ("set_null", Request::anonymous(Command::Write(set_null.clone()))),
        (
            "multi_null",
            Request::anonymous(Command::Multi(vec![set_null, create_null])),
        ),
        ("mirror_null", Request::anonymous(Command::Mirror(mirror_null))),
        ("record_silence", Request::internal(silence)),
        ("note_heartbeats", Request::internal(heartbeats)),
        (
            "end_waits_with_rights",
            Request::internal(Command::Access(AccessCommand::EndWaitsWithRights)),
        ),
        ("acquire_bounded", Request::anonymous(Command::Lock(bounded))),
        ("end_holds", Request::internal(Command::Lock(end_holds))),
        ("renew_lease", Request::anonymous(renew)),
        (
            "release_lease",
            Request::anonymous(Command::ReleaseLease { lease }),
        ),
        ("change_lease_release", change(LeaseChange::Release)),
        (
            "change_lease_renew",
            change(LeaseChange::Renew { timeout_ms: 60_000 }),
        ),
        ("change_lease_replace", change(replace)),
        ("change_lease_release_own", change(LeaseChange::ReleaseOwn)),
        (
            "change_lease_rewrite",
            change(LeaseChange::Rewrite {
                note: "another note".into(),
                timeout_ms: 30_000,
            }),
        ),
        ("set_quotas", quotas(Some(all_quotas))),
        ("set_one_quota", quotas(Some(one_quota))),
        ("remove_quotas", quotas(None)),
    ]
}

pub fn envelope(call: u64, request: Request) -> Envelope {
    Envelope::new(Origin { node: 1, boot: 7 }, call, request)
}

/// Returns all requests as batches of three, as log entries contain them.
pub fn batches() -> Vec<Bytes> {
    let envelopes: Vec<Bytes> = (1..)
        .zip(requests())
        .map(|(call, (_, request))| codec::encode(&envelope(call, request)).into())
        .collect();
    let batches = envelopes.chunks(3).zip(0..).map(|(some, number)| {
        CommandBatch {
            time_ms: TIME_MS + number,
            envelopes: some.to_vec(),
        }
        .encode()
    });
    batches.collect()
}
