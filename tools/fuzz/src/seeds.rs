//! The first inputs: an item of every kind, written by the encoders of a real node. `examples/seeds.rs`
//! writes them to the directory of the fuzzer.

use bytes::Bytes;
use lock_node::fuzz::{CommandBatch, Envelope, Origin, encode};
use znode_store::{
    AccessCommand, Acl, AclEntry, AttemptId, Command, CreateMode, Downgraded, EntryContext, HoldBounds,
    Identities, Identity, LeaseKey, Limits, LockCommand, LockMode, NamespaceName, NewToken, Op, Password,
    PathGrant, Perms, Quotas, Request, Right, Rights, RoleName, SessionId, Step, Store, TokenHash, TokenId,
    Turn, WithdrawCause, Zxid,
};

use crate::material::{
    ALICE, CURATOR, ENDED, HOLDING_LEASE, TERM, TIME_MS, WAITING_LEASE, acquire, acquire_by_lease, alice,
    base, close, create, create_below, delete, lease, lock_name, mixed_acl, open, request, request_as, set,
    wish, write, zpath,
};
use crate::snapshot;

/// Encodes a request as in the log.
pub fn envelope(request: Request) -> Bytes {
    let origin = Origin { node: 1, boot: 0 };
    encode(&Envelope::new(origin, 1, request)).into()
}

/// Encodes requests that share a log entry.
pub fn batch(requests: impl IntoIterator<Item = Request>) -> Vec<u8> {
    let batch = CommandBatch {
        time_ms: TIME_MS + 20,
        envelopes: requests.into_iter().map(envelope).collect(),
    };
    batch.encode().to_vec()
}

/// Returns inputs for [`crate::command::run`]: each request alone, and some programs.
pub fn commands() -> Vec<Vec<u8>> {
    let alone = requests().into_iter().map(|request| batch([request]));
    alone.chain(programs().into_iter().map(batch)).collect()
}

/// Returns inputs for [`crate::snapshot::run`].
pub fn snapshots() -> Vec<Vec<u8>> {
    let mut states = vec![Store::new(), base()];
    // Each program leads to a different state.
    for program in programs().into_iter().chain([requests()]) {
        let mut store = base();
        let entry = EntryContext {
            time_ms: TIME_MS + 20,
            term: TERM,
        };
        for request in program {
            store.apply(&entry, request, &mut Vec::new());
        }
        states.push(store);
    }
    states.iter_mut().map(snapshot::file_of).collect()
}

fn reconnect(session: u64, password: u8) -> Request {
    let command = Command::Reconnect {
        session: SessionId(session),
        password: Password([password; 16]),
    };
    request(session, "", command)
}

/// Builds a step on the connection on which the session was opened. Its `since` is the zxid of the opening.
fn in_turn(session: u64, number: u64, step: Step) -> Request {
    let since = Zxid(session);
    let turn = Turn { since, number };
    request(session, "", Command::InTurn { turn, step })
}

/// Returns a request of every kind.
pub fn requests() -> Vec<Request> {
    let mut requests = vec![
        open(7),
        open(1),
        request(1, "close", close(1)),
        request(0, "", close(ENDED)),
        reconnect(1, 1),
        reconnect(1, 9),
        in_turn(2, 0, Step::Write(set("/a", "in turn"))),
        in_turn(2, 1, Step::Multi(vec![delete("/a/b"), delete("/none")])),
        in_turn(2, 0, Step::CloseSession),
        request(
            0,
            "",
            Command::ExpireSessions {
                sessions: vec![SessionId(1), SessionId(ENDED)],
                term: TERM,
                as_of: Zxid(u64::MAX),
            },
        ),
        request(
            0,
            "",
            Command::ExpireSessions {
                sessions: vec![SessionId(2)],
                term: TERM + 1,
                as_of: Zxid(u64::MAX),
            },
        ),
        request(
            0,
            "",
            Command::Sweep(vec![zpath("/e"), zpath("/t"), zpath("/v"), zpath("/a/b")]),
        ),
        request(0, "", quotas("a", Some(50))),
        request(0, "", quotas("locks-of-nobody", None)),
        request(
            0,
            "",
            Command::SetLimits(Limits {
                data_bytes: 8,
                children: 3,
                ephemerals: 2,
                sessions: 4,
            }),
        ),
        write(
            1,
            "check",
            Op::Check {
                path: zpath("/a"),
                version: 0,
            },
        ),
        write(
            1,
            "held",
            Op::Held {
                lock: lock_name("x"),
                fencing_token: Zxid(33),
            },
        ),
        write(1, "", delete("/a/n0000000003")),
        write(1, "", delete("/locks/x")),
        write(1, "", Op::DeleteRecursive { path: zpath("/a") }),
        write(
            2,
            "",
            Op::DeleteRecursive {
                path: zpath("/locks"),
            },
        ),
        write(
            0,
            "",
            Op::DeleteRecursive {
                path: zpath("/zookeeper/quota/q"),
            },
        ),
        write(0, "", set("/a", "other data")),
        write(0, "", set("/q/r", "a little more")),
        write(
            0,
            "",
            set("/zookeeper/quota/q/zookeeper_limits", "count=2,bytes=10"),
        ),
        write(
            1,
            "",
            create(
                "/locks/x/anything0000000001",
                "",
                CreateMode::Ephemeral,
                Acl::open(),
            ),
        ),
        write(
            1,
            "",
            create(
                "/locks/r/n__READ__",
                "",
                CreateMode::EphemeralSequential,
                Acl::open(),
            ),
        ),
        write(
            1,
            "",
            create(
                &format!("/locks/d/{CURATOR}"),
                "{}",
                CreateMode::Ephemeral,
                Acl::open(),
            ),
        ),
    ];
    for mode in [
        CreateMode::Persistent,
        CreateMode::Ephemeral,
        CreateMode::PersistentSequential,
        CreateMode::EphemeralSequential,
        CreateMode::Container,
        CreateMode::Ttl { ttl_ms: 5 },
        CreateMode::TtlSequential { ttl_ms: 5 },
    ] {
        requests.push(write(
            2,
            "create",
            create_below("/a/new/k", "data", mode, Acl::open(), true),
        ));
    }
    requests.extend(rights());
    requests.extend(locks());
    requests.extend(leases());
    requests.extend(policies());
    requests
}

/// Returns requests about access control lists of all kinds, set by callers of all kinds.
fn rights() -> Vec<Request> {
    let auth = Acl::new(vec![AclEntry {
        perms: Perms::ALL,
        scheme: "auth".into(),
        id: "".into(),
    }]);
    let set_acl = |path, acl| {
        Command::Write(Op::SetAcl {
            path: zpath(path),
            acl,
            aversion: -1,
        })
    };
    let operator = Identities::new([Identity::Super]);
    let by_digest = Identities::new([Identity::Digest(ALICE.into())]);
    vec![
        request_as(1, "", alice(), set_acl("/a", auth.clone())),
        request_as(
            0,
            "",
            alice(),
            Command::Write(create("/mine", "", CreateMode::Persistent, auth)),
        ),
        request_as(0, "", alice(), Command::Write(set("/closed", "by its owner"))),
        request_as(0, "", operator, Command::Write(delete("/read-only"))),
        request_as(0, "", by_digest, set_acl("/closed", mixed_acl())),
        request(0, "", set_acl("/closed", Acl::open())),
        request(0, "", set_acl("/q", Acl::new(Vec::new()))),
        request(
            0,
            "",
            Command::Write(create("/closed/n", "", CreateMode::Persistent, Acl::open())),
        ),
    ]
}

const ADMIN: TokenId = TokenId([0xad; 16]);
const WORKER: TokenId = TokenId([0x30; 16]);

fn by(identity: Identity, session: u64, command: Command) -> Request {
    request_as(session, "", Identities::new([identity]), command)
}

fn worker_role() -> RoleName {
    RoleName::parse("worker").expect("the name is valid")
}

fn secure() -> Request {
    let command = AccessCommand::Secure {
        token: ADMIN,
        hash: TokenHash([1; 32]),
        description: "first".into(),
        anonymous: Some(vec![PathGrant {
            prefix: zpath("/a"),
            rights: Rights::of([Right::Read]),
        }]),
    };
    by(Identity::Super, 0, Command::Access(command))
}

/// Returns the command that sets the same limit for all quantities of a namespace, or removes its quotas.
fn quotas(namespace: &str, limit: Option<u64>) -> Command {
    Command::SetQuotas {
        namespace: NamespaceName::parse(namespace).expect("the name is valid"),
        quotas: limit.map(|limit| Quotas {
            sessions: Some(limit),
            locks: Some(limit),
            znodes: Some(limit),
            bytes: Some(limit),
            requests_per_second: Some(1),
        }),
    }
}

/// Returns every command that changes permissions, in an order in which all can succeed.
fn policies() -> Vec<Request> {
    let asked = |command| by(Identity::Token(ADMIN), 0, Command::Access(command));
    let new = |id, expires_at_ms| {
        AccessCommand::CreateToken(NewToken {
            id,
            hash: TokenHash([2; 32]),
            role: worker_role(),
            description: "nightly".into(),
            expires_at_ms,
        })
    };
    let grant = |path, rights| PathGrant {
        prefix: zpath(path),
        rights,
    };
    vec![
        secure(),
        asked(AccessCommand::SetRole {
            role: worker_role(),
            grants: vec![
                grant("/a", Rights::of([Right::Write])),
                grant("/locks/x", Rights::of([Right::Lock, Right::Read])),
                grant("/locks/r", Rights::of([Right::Break])),
                grant("/q", Rights::of([Right::Administer])),
            ],
        }),
        asked(new(WORKER, None)),
        asked(new(TokenId([9; 16]), Some(TIME_MS + 1_000))),
        asked(AccessCommand::MapCertificate {
            certificate: crate::material::BOB.into(),
            role: worker_role(),
        }),
        asked(AccessCommand::RevokeToken(TokenId([9; 16]))),
        asked(AccessCommand::RevokeToken(ADMIN)),
        asked(AccessCommand::UnmapCertificate(crate::material::BOB.into())),
        asked(AccessCommand::DeleteRole(worker_role())),
        asked(AccessCommand::DeleteRole(RoleName::anonymous())),
    ]
}

/// Returns requests to a secured state, both permitted and rejected.
fn secured() -> Vec<Request> {
    let worker = |session, command| by(Identity::Token(WORKER), session, command);
    let mut opening = open(9);
    opening.caller = Identities::new([Identity::Token(WORKER)]);
    let mut program: Vec<Request> = policies().into_iter().take(5).collect();
    program.extend([
        opening.clone(),
        // A repeated request, and the same one by another caller.
        opening,
        open(9),
        worker(9, acquire("x", LockMode::Exclusive, 1, 170, true)),
        worker(9, acquire("s", LockMode::Exclusive, 1, 171, true)),
        worker(9, Command::Write(set("/a", "mine"))),
        worker(9, Command::Multi(vec![set("/a", "mine"), set("/q", "not mine")])),
        worker(1, Command::Write(delete("/a/b/c"))),
        worker(
            0,
            Command::Write(set("/zookeeper/quota/q/zookeeper_limits", "count=9")),
        ),
        by(Identity::Internal, 0, Command::Sweep(vec![zpath("/e")])),
        by(Identity::Token(ADMIN), 9, close(9)),
        request_as(1, "", alice(), Command::Write(set("/a", "by certificate"))),
        worker(
            0,
            Command::Write(create("/locks/x/y", "", CreateMode::Container, Acl::open())),
        ),
    ]);
    program
}

/// Returns every step of the lock protocol.
fn locks() -> Vec<Request> {
    let holder = |number: u64, kind: &str, sequence: u64| format!("_c_{number:032x}-{kind}{sequence:010}");
    // The numbers follow the order of the requests that build the base state.
    let first = first_call();
    let step = |session, id, step| request(session, id, Command::Lock(step));
    let semaphore = LockMode::Semaphore { limit: 3 };
    vec![
        request(1, "try", acquire("x", LockMode::Exclusive, 1, 90, false)),
        request(2, "try", acquire("x", LockMode::Shared, 1, 91, false)),
        request(2, "new", acquire("new/lock", LockMode::Shared, 1, 92, true)),
        request(3, "more", acquire("s", semaphore, 1, 93, true)),
        request(
            3,
            "zero",
            acquire("s", LockMode::Semaphore { limit: 2 }, 9, 94, true),
        ),
        // A repeated request.
        request(
            2,
            &(first + 2).to_string(),
            acquire("x", LockMode::Exclusive, 1, 95, true),
        ),
        step(
            1,
            "release",
            LockCommand::Release {
                lock: lock_name("x"),
                holder: holder(first, "lock-", 0),
            },
        ),
        step(
            2,
            "time out",
            LockCommand::Withdraw {
                lock: lock_name("x"),
                holder: holder(first + 2, "lock-", 1),
                attempt: AttemptId(first + 2),
                cause: WithdrawCause::TimedOut,
            },
        ),
        step(
            1,
            "",
            LockCommand::Withdraw {
                lock: lock_name("x"),
                holder: holder(first, "lock-", 0),
                attempt: AttemptId(first + 1),
                cause: WithdrawCause::Abandoned,
            },
        ),
        step(
            0,
            "break",
            LockCommand::Break {
                lock: lock_name("r"),
                holder: holder(first + 5, "__READ__", 0),
                by: "10.0.0.7".into(),
                reason: "out of order".into(),
            },
        ),
        step(
            1,
            "downgrade",
            LockCommand::Downgrade {
                lock: lock_name("x"),
                holder: holder(first, "lock-", 0),
                to: Downgraded::Upgradeable,
            },
        ),
        step(
            1,
            "upgrade",
            LockCommand::Upgrade {
                lock: lock_name("u"),
                holder: holder(first + 12, "lock-", 0),
                attempt: AttemptId(160),
                wait: true,
            },
        ),
        step(
            1,
            "many",
            LockCommand::AcquireMany {
                wishes: vec![
                    wish("x", LockMode::Exclusive, 1),
                    wish("u", LockMode::Shared, 1),
                    wish("m", LockMode::Semaphore { limit: 2 }, 1),
                ],
                guid: 161,
                attempt: AttemptId(161),
                wait: true,
            },
        ),
        step(
            1,
            "release many",
            LockCommand::ReleaseMany {
                holders: vec![(lock_name("x"), holder(first, "lock-", 0))],
            },
        ),
        step(
            1,
            "withdraw many",
            LockCommand::WithdrawMany {
                holders: vec![(lock_name("x"), holder(first, "lock-", 0))],
                attempt: AttemptId(first),
                cause: WithdrawCause::TimedOut,
            },
        ),
        step(
            0,
            "configure",
            LockCommand::Configure {
                lock: lock_name("s"),
                limit: Some(Some(2)),
                draining: Some(true),
            },
        ),
        step(
            0,
            "revoke",
            LockCommand::Revoke {
                lock: lock_name("r"),
                holder: None,
                by: "10.0.0.7".into(),
                reason: "backup".into(),
            },
        ),
        step(
            1,
            "answer",
            LockCommand::AnswerRevoke {
                lock: lock_name("u"),
                holder: holder(first + 12, "lock-", 0),
                answer: "soon".into(),
            },
        ),
        step(
            0,
            "count",
            LockCommand::CountDelays {
                locks: vec![(lock_name("closed"), Zxid(1), 10)],
                term: TERM,
            },
        ),
        step(
            1,
            "bounded",
            LockCommand::AcquireBounded {
                wish: wish("b", LockMode::Exclusive, 1),
                guid: 162,
                attempt: AttemptId(162),
                wait: true,
                bounds: HoldBounds {
                    min_ms: 30,
                    max_ms: 1_000,
                },
                lease: None,
            },
        ),
        step(
            0,
            "",
            LockCommand::EndHolds {
                holders: vec![(lock_name("l"), holder(HOLDING_LEASE.session.0, "lock-", 0))],
                term: TERM,
            },
        ),
    ]
}

/// Returns every command about leases, and about the silence of sessions.
fn leases() -> Vec<Request> {
    let renew = |lease, timeout_ms| request(0, "renew", Command::RenewLease { lease, timeout_ms });
    let release = |lease| request(0, "", Command::ReleaseLease { lease });
    let wrong_secret = LeaseKey {
        password: WAITING_LEASE.password,
        ..HOLDING_LEASE
    };
    vec![
        acquire_by_lease(lease(13), true),
        acquire_by_lease(lease(14), false),
        // A repeated request.
        acquire_by_lease(HOLDING_LEASE, false),
        renew(HOLDING_LEASE, 8_000),
        renew(wrong_secret, 8_000),
        release(HOLDING_LEASE),
        release(WAITING_LEASE),
        release(wrong_secret),
        request(0, "", close(WAITING_LEASE.session.0)),
        write(HOLDING_LEASE.session.0, "", set("/a", "by a lease")),
        request(
            0,
            "",
            Command::RecordSilence {
                sessions: vec![(SessionId(1), 500), (HOLDING_LEASE.session, 2_000)],
                term: TERM,
                as_of: Zxid(u64::MAX),
            },
        ),
        request(
            0,
            "",
            Command::NoteHeartbeats {
                sessions: vec![SessionId(1), HOLDING_LEASE.session],
                term: TERM,
            },
        ),
    ]
}

/// Returns the number of the call that acquired the first lock of the base state.
fn first_call() -> u64 {
    let view = base().lock(&lock_name("x")).expect("the base state has the lock");
    let holder = &view.holders[0].holder;
    let guid = holder
        .trim_start_matches("_c_")
        .split('-')
        .next()
        .expect("a name has a beginning");
    u64::from_str_radix(guid, 16).expect("the id is a small number")
}

/// Returns programs: requests that depend on earlier ones.
fn programs() -> Vec<Vec<Request>> {
    let multi = |ops: Vec<Op>| request(1, "multi", Command::Multi(ops));
    let first = first_call();
    let x = lock_name("x");
    let holder = format!("_c_{first:032x}-lock-0000000000");
    let release = |id: &str| {
        let (lock, holder) = (x.clone(), holder.clone());
        request(1, id, Command::Lock(LockCommand::Release { lock, holder }))
    };
    vec![
        vec![multi(vec![
            create("/m", "", CreateMode::Persistent, Acl::open()),
            create("/m/n", "", CreateMode::EphemeralSequential, mixed_acl()),
            set("/m", "changed"),
            delete("/a/b/c"),
            Op::Check {
                path: zpath("/m"),
                version: 1,
            },
        ])],
        // Rolled back as a whole.
        vec![multi(vec![
            delete("/a/b/c"),
            create("/locks/x/n", "", CreateMode::EphemeralSequential, Acl::open()),
            Op::SetAcl {
                path: zpath("/a"),
                acl: mixed_acl(),
                aversion: 0,
            },
            delete("/not/there"),
        ])],
        vec![
            release("one"),
            release("two"),
            release("two"),
            request(0, "", close(2)),
            open(8),
            request(8, "", close(8)),
        ],
        secured(),
        // The waiting lease is granted the lock when the minimum time of the first hold is over.
        vec![
            request(0, "", Command::ReleaseLease { lease: HOLDING_LEASE }),
            request(0, "", Command::ReleaseLease { lease: HOLDING_LEASE }),
            acquire_by_lease(lease(15), true),
            request(
                0,
                "",
                Command::RenewLease {
                    lease: WAITING_LEASE,
                    timeout_ms: 9_000,
                },
            ),
            request(
                0,
                "renew",
                Command::RenewLease {
                    lease: lease(15),
                    timeout_ms: 9_000,
                },
            ),
            request(
                0,
                "renew",
                Command::RenewLease {
                    lease: lease(15),
                    timeout_ms: 9_000,
                },
            ),
        ],
        vec![
            request(1, "", close(1)),
            request(3, "", acquire("x", LockMode::Exclusive, 1, 70, true)),
            request(
                0,
                "",
                Command::ExpireSessions {
                    sessions: vec![SessionId(2), SessionId(3)],
                    term: TERM,
                    as_of: Zxid(u64::MAX),
                },
            ),
            request(
                0,
                "",
                Command::Sweep(vec![zpath("/locks/x"), zpath("/locks/c"), zpath("/locks")]),
            ),
        ],
        // More contenders than a linear search examines.
        (0..20)
            .map(|number| {
                request(
                    1,
                    "",
                    not_reentrant(acquire("x", LockMode::Exclusive, 1, 100 + number, true)),
                )
            })
            .collect(),
        (0..12)
            .map(|number| write(1, "", delete(&format!("/a/n{:010}", number + 2))))
            .collect(),
    ]
}

/// Turns a call into one that always creates its own contender.
fn not_reentrant(mut command: Command) -> Command {
    if let Command::Lock(LockCommand::Acquire { wish, .. }) = &mut command {
        wish.reentrant = false;
    }
    command
}
