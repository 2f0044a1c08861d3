//! Every kind of command and every kind of operation, asked for by everybody, at paths of all kinds: each cell is compared
//! with a table that was written for people (docs/reference/security.md has the same) and shares nothing with the code.

use std::collections::BTreeSet;

use znode_store::{
    AccessCommand, Acl, AttemptId, Command, CreateMode, CreatePath, Downgraded, EntryContext, HoldBounds,
    Identities, Identity, LeaseChange, LeaseKey, Limits, LockCommand, LockMode, LockName, LockWish,
    MirrorStep, NamespaceName, NewLease, NewToken, Op, Password, PathGrant, Quotas, Refusal, Request, Right,
    Rights, RoleName, Rules, SessionId, Step, Store, TokenHash, TokenId, Turn, Unproven, WithdrawCause,
    ZPath, Zxid,
};

const NOW_MS: u64 = 1_000;
const ENTRY: EntryContext = EntryContext {
    time_ms: NOW_MS,
    term: 1,
};

/// Caller of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    /// Nobody in particular.
    Nobody,
    /// A token whose role grants nothing.
    Nothing,
    /// A token with one right at [`OWN`], and at the locks of that name.
    One(Right),
    /// The role `admin`.
    Admin,
    /// A token with all rights at [`OWN`], whose time is over.
    Expired,
    /// The same, revoked.
    Revoked,
    /// The operator.
    Operator,
    /// The cluster itself.
    Cluster,
}

const EVERYBODY: [Who; 12] = [
    Who::Nobody,
    Who::Nothing,
    Who::One(Right::Read),
    Who::One(Right::Lock),
    Who::One(Right::Write),
    Who::One(Right::Break),
    Who::One(Right::Administer),
    Who::Admin,
    Who::Expired,
    Who::Revoked,
    Who::Operator,
    Who::Cluster,
];

impl Who {
    fn token(self) -> Option<TokenId> {
        let number = match self {
            Self::Nobody | Self::Operator | Self::Cluster => return None,
            Self::Nothing => 10,
            Self::One(right) => 20 + right as u8,
            Self::Admin => 1,
            Self::Expired => 30,
            Self::Revoked => 31,
        };
        Some(TokenId([number; 16]))
    }

    fn identities(self) -> Identities {
        match (self, self.token()) {
            (_, Some(token)) => Identities::new([Identity::Token(token)]),
            (Self::Operator, None) => Identities::new([Identity::Super]),
            (Self::Cluster, None) => Identities::internal(),
            (_, None) => Identities::none(),
        }
    }
}

/// Path of a row, relative to the grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Own,
    Below,
    Parent,
    Foreign,
    /// Its name begins as the own one's does.
    Sibling,
}

const PLACES: [Place; 5] = [
    Place::Own,
    Place::Below,
    Place::Parent,
    Place::Foreign,
    Place::Sibling,
];

impl Place {
    fn name(self) -> &'static str {
        match self {
            Self::Own => "team/own",
            Self::Below => "team/own/deep",
            Self::Parent => "team",
            Self::Foreign => "other/x",
            Self::Sibling => "team/owner",
        }
    }

    /// Returns whether the grants of callers with one right cover it.
    fn is_covered(self) -> bool {
        matches!(self, Self::Own | Self::Below)
    }

    fn path(self) -> ZPath {
        path(&format!("/{}", self.name()))
    }

    fn lock(self) -> LockName {
        LockName::parse(self.name()).expect("it is a name")
    }
}

/// Owner of the session that a row names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Own,
    Foreign,
}

/// Callers that the table admits, in words.
#[derive(Debug, Clone, Copy)]
enum Rule {
    /// Callers with this right there.
    Needs(Right),
    /// Callers with one of these rights.
    NeedsOne(&'static [Right]),
    /// Callers with an identity.
    Somebody,
    /// Callers that administer everything.
    AdministersAll,
    /// The session's owner, and who administers everything.
    Session(Owner),
    /// The cluster, and nobody else.
    ClusterOnly,
}

impl Rule {
    fn lets(self, who: Who, place: Place) -> bool {
        let has = |right: Right| match who {
            Who::One(one) => one == right && place.is_covered(),
            Who::Admin | Who::Operator | Who::Cluster => true,
            Who::Nobody | Who::Nothing | Who::Expired | Who::Revoked => false,
        };
        let is_somebody = !matches!(who, Who::Nobody | Who::Expired | Who::Revoked);
        let has_all = matches!(who, Who::Admin | Who::Operator | Who::Cluster);
        match self {
            Self::Needs(right) => has(right),
            Self::NeedsOne(rights) => rights.iter().any(|right| has(*right)),
            Self::Somebody | Self::Session(Owner::Own) => is_somebody,
            Self::AdministersAll | Self::Session(Owner::Foreign) => has_all,
            Self::ClusterOnly => who == Who::Cluster,
        }
    }
}

fn path(text: &str) -> ZPath {
    ZPath::parse(text).expect("it is a path")
}

fn mirror(place: Place) -> Command {
    let path = place.path();
    Command::Mirror(vec![MirrorStep::Remove { path }])
}

fn create(at: &ZPath, mode: CreateMode, parents: bool) -> Op {
    let text = format!("{at}/new");
    Op::Create {
        path: CreatePath::parse(&text, mode.is_sequential()).expect("it is a path"),
        data: "data".into(),
        acl: Acl::open(),
        mode,
        parents,
    }
}

/// Session 1 is the caller's, session 2 another one's, session 3 was opened to be closed.
fn own() -> SessionId {
    SessionId(1)
}

fn foreign() -> SessionId {
    SessionId(2)
}

/// The operations, each with what the table says.
fn ops(place: Place) -> Vec<(Op, Rule)> {
    let at = place.path();
    let version = -1;
    let lock = place.lock();
    let contender = lock.znode().join("n-0000000000").expect("it is a path");
    let mut ops = vec![
        (
            Op::Delete {
                path: at.clone(),
                version,
            },
            Rule::Needs(Right::Write),
        ),
        (
            Op::DeleteRecursive { path: at.clone() },
            Rule::Needs(Right::Write),
        ),
        (
            Op::Set {
                path: at.clone(),
                data: "x".into(),
                version,
            },
            Rule::Needs(Right::Write),
        ),
        (
            Op::SetAcl {
                path: at.clone(),
                acl: Acl::open(),
                aversion: version,
            },
            Rule::Needs(Right::Administer),
        ),
        (
            Op::Check {
                path: at.clone(),
                version,
            },
            Rule::Needs(Right::Read),
        ),
        (
            Op::Held {
                lock: lock.clone(),
                fencing_token: Zxid(1),
            },
            Rule::NeedsOne(&[Right::Read, Right::Lock]),
        ),
        // The contender is another session's.
        (
            Op::Delete {
                path: contender.clone(),
                version,
            },
            Rule::Needs(Right::Break),
        ),
        // As a client of ZooKeeper enters the queue.
        (
            Op::Create {
                path: CreatePath::parse(&format!("{}/n-", lock.znode()), true).expect("it is a path"),
                data: "10.0.0.7".into(),
                acl: Acl::open(),
                mode: CreateMode::EphemeralSequential,
                parents: false,
            },
            Rule::NeedsOne(&[Right::Write, Right::Lock]),
        ),
        (
            create(
                &path(&format!("/zookeeper/quota{at}")),
                CreateMode::Persistent,
                true,
            ),
            Rule::AdministersAll,
        ),
    ];
    for mode in [
        CreateMode::Persistent,
        CreateMode::PersistentSequential,
        CreateMode::Ephemeral,
        CreateMode::EphemeralSequential,
        CreateMode::Container,
        CreateMode::Ttl { ttl_ms: 5 },
        CreateMode::TtlSequential { ttl_ms: 5 },
    ] {
        ops.push((create(&at, mode, false), Rule::Needs(Right::Write)));
        ops.push((create(&at, mode, true), Rule::Needs(Right::Write)));
    }
    ops
}

fn steps(place: Place) -> Vec<(LockCommand, Rule)> {
    let lock = place.lock();
    let wish = LockWish {
        lock: lock.clone(),
        mode: LockMode::Exclusive,
        permits: 1,
        owner: "".into(),
        reentrant: true,
        note: "".into(),
        address: "".into(),
        lock_delay_ms: 0,
        names: Default::default(),
    };
    let holder = || "n-0000000000".to_owned();
    let attempt = AttemptId(7);
    let holders = vec![(lock.clone(), holder())];
    let (by, reason) = ("", "why");
    let locks = Rule::Needs(Right::Lock);
    vec![
        (
            LockCommand::Acquire {
                wish: wish.clone(),
                guid: 1,
                attempt,
                wait: true,
            },
            locks,
        ),
        (
            LockCommand::AcquireBounded {
                wish: wish.clone(),
                guid: 1,
                attempt,
                wait: true,
                bounds: HoldBounds::default(),
                lease: None,
            },
            locks,
        ),
        (
            LockCommand::AcquireBounded {
                wish: wish.clone(),
                guid: 2,
                attempt,
                wait: true,
                bounds: HoldBounds::default(),
                lease: Some(NewLease {
                    key: LeaseKey {
                        session: SessionId(79),
                        password: Password([0; 16]),
                    },
                    timeout_ms: 1_000,
                }),
            },
            locks,
        ),
        // The lease does not exist, so the right to the lock alone is checked.
        (
            LockCommand::ChangeLease {
                lock: lock.clone(),
                lease: SessionId(78),
                change: LeaseChange::Release,
            },
            locks,
        ),
        (
            LockCommand::AcquireMany {
                wishes: vec![wish],
                guid: 1,
                attempt,
                wait: true,
            },
            locks,
        ),
        // All of these name the contender of another session.
        (
            LockCommand::Release {
                lock: lock.clone(),
                holder: holder(),
            },
            locks,
        ),
        (
            LockCommand::ReleaseMany {
                holders: holders.clone(),
            },
            locks,
        ),
        (
            LockCommand::Withdraw {
                lock: lock.clone(),
                holder: holder(),
                attempt,
                cause: WithdrawCause::Abandoned,
            },
            locks,
        ),
        (
            LockCommand::WithdrawMany {
                holders,
                attempt,
                cause: WithdrawCause::TimedOut,
            },
            locks,
        ),
        (
            LockCommand::Downgrade {
                lock: lock.clone(),
                holder: holder(),
                to: Downgraded::Shared,
            },
            locks,
        ),
        (
            LockCommand::Upgrade {
                lock: lock.clone(),
                holder: holder(),
                attempt,
                wait: true,
            },
            locks,
        ),
        (
            LockCommand::AnswerRevoke {
                lock: lock.clone(),
                holder: holder(),
                answer: "".into(),
            },
            locks,
        ),
        (
            LockCommand::Break {
                lock: lock.clone(),
                holder: holder(),
                by: by.into(),
                reason: reason.into(),
            },
            Rule::Needs(Right::Break),
        ),
        (
            LockCommand::Revoke {
                lock: lock.clone(),
                holder: None,
                by: by.into(),
                reason: reason.into(),
            },
            Rule::Needs(Right::Break),
        ),
        (
            LockCommand::Configure {
                lock: lock.clone(),
                limit: None,
                draining: Some(false),
            },
            Rule::Needs(Right::Administer),
        ),
        (
            LockCommand::CountDelays {
                locks: vec![(lock.clone(), Zxid(1), 1)],
                term: 1,
            },
            Rule::ClusterOnly,
        ),
        (
            LockCommand::EndHolds {
                holders: vec![(lock, String::from("holder"))],
                term: 1,
            },
            Rule::ClusterOnly,
        ),
    ]
}

fn policies() -> Vec<(AccessCommand, Rule)> {
    let role = RoleName::parse("new").expect("it is a name");
    let id = TokenId([99; 16]);
    let hash = TokenHash([9; 32]);
    let all = Rule::AdministersAll;
    vec![
        (
            AccessCommand::Secure {
                token: id,
                hash,
                description: "".into(),
                anonymous: None,
            },
            // In an open state the rule is another one; here the row records that the command succeeds.
            Rule::AdministersAll,
        ),
        (
            AccessCommand::CreateToken(NewToken {
                id,
                hash,
                role: RoleName::admin(),
                description: "".into(),
                expires_at_ms: None,
            }),
            all,
        ),
        (AccessCommand::RevokeToken(TokenId([10; 16])), all),
        (
            AccessCommand::SetRole {
                role: role.clone(),
                grants: vec![],
            },
            all,
        ),
        (AccessCommand::DeleteRole(role), all),
        (
            AccessCommand::MapCertificate {
                certificate: "CN=new".into(),
                role: RoleName::admin(),
            },
            all,
        ),
        (AccessCommand::UnmapCertificate("CN=new".into()), all),
    ]
}

/// Every kind of command at a place, with the session that it is asked for and what the table says.
fn commands(place: Place) -> Vec<(Option<SessionId>, Command, Rule)> {
    let mine = Some(own());
    let turn = Turn {
        since: Zxid(0),
        number: 0,
    };
    let opening = Command::OpenSession {
        session: SessionId(77),
        password: Password([0; 16]),
        timeout_ms: 1_000,
        name: "".into(),
        address: "".into(),
    };
    let expire = Command::ExpireSessions {
        sessions: vec![foreign()],
        term: 1,
        as_of: Zxid(u64::MAX),
    };
    let silence = Command::RecordSilence {
        sessions: vec![(foreign(), 1)],
        term: 1,
        as_of: Zxid(u64::MAX),
    };
    let heartbeats = Command::NoteHeartbeats {
        sessions: vec![foreign()],
        term: 1,
    };
    let reconnect = |session| Command::Reconnect {
        session,
        password: Password([0; 16]),
    };
    let close = |session| Command::CloseSession { session };
    let set = |place: Place| Op::Set {
        path: place.path(),
        data: "".into(),
        version: -1,
    };
    let lease = LeaseKey {
        session: SessionId(78),
        password: Password([0; 16]),
    };
    let renewal = Command::RenewLease {
        lease,
        timeout_ms: 1_000,
    };
    let quotas = Command::SetQuotas {
        namespace: NamespaceName::parse("a").expect("it is a name"),
        quotas: Some(Quotas::default()),
    };
    let mut commands = vec![
        (None, renewal, Rule::Somebody),
        (None, Command::ReleaseLease { lease }, Rule::Somebody),
        (None, opening, Rule::Somebody),
        (None, close(own()), Rule::Session(Owner::Own)),
        (mine, close(own()), Rule::Session(Owner::Own)),
        (None, close(foreign()), Rule::Session(Owner::Foreign)),
        (mine, close(foreign()), Rule::Session(Owner::Foreign)),
        (mine, reconnect(own()), Rule::Session(Owner::Own)),
        (None, reconnect(foreign()), Rule::Session(Owner::Foreign)),
        (
            Some(foreign()),
            reconnect(foreign()),
            Rule::Session(Owner::Foreign),
        ),
        (None, expire, Rule::ClusterOnly),
        (None, silence, Rule::ClusterOnly),
        (None, heartbeats, Rule::ClusterOnly),
        (None, Command::Sweep(vec![place.path()]), Rule::ClusterOnly),
        (None, Command::SetLimits(Limits::default()), Rule::ClusterOnly),
        (
            None,
            Command::Access(AccessCommand::EndWaitsWithRights),
            Rule::ClusterOnly,
        ),
        (None, mirror(place), Rule::AdministersAll),
        (None, quotas, Rule::AdministersAll),
        // In somebody else's session nothing is allowed that would be in one's own.
        (
            Some(foreign()),
            Command::Write(set(Place::Own)),
            Rule::Session(Owner::Foreign),
        ),
        (
            mine,
            Command::InTurn {
                turn,
                step: Step::CloseSession,
            },
            Rule::Session(Owner::Own),
        ),
        (
            Some(foreign()),
            Command::InTurn {
                turn,
                step: Step::CloseSession,
            },
            Rule::Session(Owner::Foreign),
        ),
    ];
    for (op, rule) in ops(place) {
        commands.push((mine, Command::Write(op.clone()), rule));
        commands.push((mine, Command::Multi(vec![op.clone()]), rule));
        commands.push((
            mine,
            Command::InTurn {
                turn,
                step: Step::Write(op.clone()),
            },
            rule,
        ));
        let step = Step::Multi(vec![op]);
        commands.push((mine, Command::InTurn { turn, step }, rule));
    }
    commands.extend(steps(place).into_iter().map(|(step, rule)| {
        // The acquire of a lease opens the session itself.
        let session = match &step {
            LockCommand::AcquireBounded { lease: Some(_), .. } => None,
            _ => mine,
        };
        (session, Command::Lock(step), rule)
    }));
    commands.extend(
        policies()
            .into_iter()
            .map(|(command, rule)| (None, Command::Access(command), rule)),
    );
    commands
}

/// Returns the kind of a command. A new command does not compile before it has a name here, and the test fails before it has a row.
fn kind(command: &Command) -> &'static str {
    match command {
        Command::OpenSession { .. } => "open session",
        Command::CloseSession { .. } => "close session",
        Command::ExpireSessions { .. } => "expire sessions",
        Command::RecordSilence { .. } => "record silence",
        Command::NoteHeartbeats { .. } => "note heartbeats",
        Command::RenewLease { .. } => "renew lease",
        Command::ReleaseLease { .. } => "release lease",
        Command::Write(op) => op_kind(op),
        Command::Multi(_) => "multi",
        Command::Sweep(_) => "sweep",
        Command::SetLimits(_) => "set limits",
        Command::Mirror(_) => "mirror",
        Command::SetQuotas { .. } => "set quotas",
        Command::Reconnect { .. } => "reconnect",
        Command::InTurn {
            step: Step::Write(_), ..
        } => "write in turn",
        Command::InTurn {
            step: Step::Multi(_), ..
        } => "multi in turn",
        Command::InTurn {
            step: Step::CloseSession,
            ..
        } => "close session in turn",
        Command::Lock(LockCommand::Acquire { .. }) => "acquire",
        Command::Lock(LockCommand::Release { .. }) => "release",
        Command::Lock(LockCommand::Withdraw { .. }) => "withdraw",
        Command::Lock(LockCommand::Break { .. }) => "break",
        Command::Lock(LockCommand::Downgrade { .. }) => "downgrade",
        Command::Lock(LockCommand::Upgrade { .. }) => "upgrade",
        Command::Lock(LockCommand::AcquireMany { .. }) => "acquire many",
        Command::Lock(LockCommand::ReleaseMany { .. }) => "release many",
        Command::Lock(LockCommand::WithdrawMany { .. }) => "withdraw many",
        Command::Lock(LockCommand::Configure { .. }) => "configure",
        Command::Lock(LockCommand::Revoke { .. }) => "revoke",
        Command::Lock(LockCommand::AnswerRevoke { .. }) => "answer revoke",
        Command::Lock(LockCommand::CountDelays { .. }) => "count delays",
        Command::Lock(LockCommand::AcquireBounded { lease: None, .. }) => "acquire bounded",
        Command::Lock(LockCommand::AcquireBounded { lease: Some(_), .. }) => "acquire lease",
        Command::Lock(LockCommand::EndHolds { .. }) => "end holds",
        Command::Lock(LockCommand::ChangeLease { .. }) => "change lease",
        Command::Access(AccessCommand::Secure { .. }) => "secure",
        Command::Access(AccessCommand::CreateToken(_)) => "create token",
        Command::Access(AccessCommand::RevokeToken(_)) => "revoke token",
        Command::Access(AccessCommand::SetRole { .. }) => "set role",
        Command::Access(AccessCommand::DeleteRole(_)) => "delete role",
        Command::Access(AccessCommand::MapCertificate { .. }) => "map certificate",
        Command::Access(AccessCommand::UnmapCertificate(_)) => "unmap certificate",
        Command::Access(AccessCommand::EndWaitsWithRights) => "end waits with rights",
    }
}

fn op_kind(op: &Op) -> &'static str {
    match op {
        Op::Create { .. } => "create",
        Op::Delete { .. } => "delete",
        Op::DeleteRecursive { .. } => "delete recursive",
        Op::Set { .. } => "set",
        Op::SetAcl { .. } => "set acl",
        Op::Check { .. } => "check",
        Op::Held { .. } => "held",
    }
}

/// Number of names of the two functions above.
const KINDS: usize = 48;

/// A secured state with everybody's tokens, in which the paths, the locks and the sessions exist.
fn world(who: Who) -> (Store, Zxid) {
    let mut store = Store::new();
    let ask = |store: &mut Store, session, caller: Identities, command| {
        let request = Request {
            session,
            caller,
            ..Request::anonymous(command)
        };
        let applied = store.apply(&ENTRY, request.clone(), &mut Vec::new());
        assert!(applied.outcome.is_ok(), "{request}: {applied}");
        applied.zxid
    };
    let operator = || Identities::new([Identity::Super]);
    let secure = AccessCommand::Secure {
        token: TokenId([1; 16]),
        hash: TokenHash([1; 32]),
        description: "".into(),
        anonymous: None,
    };
    ask(&mut store, None, operator(), Command::Access(secure));
    let role = |number: u8| RoleName::parse(&format!("role{number}")).expect("it is a name");
    let mut roles = vec![(10, Rights::default()), (30, Rights::ALL), (31, Rights::ALL)];
    roles.extend(Right::ALL.map(|right| (20 + right as u8, Rights::of([right]))));
    for (number, rights) in roles {
        let grants = match rights.is_empty() {
            true => vec![],
            false => vec![
                PathGrant {
                    prefix: Place::Own.path(),
                    rights,
                },
                PathGrant::of_locks(&Place::Own.lock(), rights),
            ],
        };
        let role = role(number);
        let set = AccessCommand::SetRole {
            role: role.clone(),
            grants,
        };
        ask(&mut store, None, operator(), Command::Access(set));
        let token = AccessCommand::CreateToken(NewToken {
            id: TokenId([number; 16]),
            hash: TokenHash([number; 32]),
            role,
            description: "".into(),
            expires_at_ms: (number == 30).then_some(NOW_MS + 1),
        });
        ask(&mut store, None, operator(), Command::Access(token));
    }
    let open = |session| Command::OpenSession {
        session,
        password: Password([0; 16]),
        timeout_ms: 1_000,
        name: "".into(),
        address: "".into(),
    };
    // Nobody can open a session, so its own one is somebody else's.
    let owner = match who {
        Who::Nobody => Identities::new([Identity::X509("CN=gone".into())]),
        who => who.identities(),
    };
    if who == Who::Nobody {
        let map = AccessCommand::MapCertificate {
            certificate: "CN=gone".into(),
            role: RoleName::admin(),
        };
        ask(&mut store, None, operator(), Command::Access(map));
    }
    let since = ask(&mut store, None, owner, open(own()));
    ask(&mut store, None, operator(), open(foreign()));
    for place in [
        Place::Parent,
        Place::Own,
        Place::Below,
        Place::Foreign,
        Place::Sibling,
    ] {
        let at = place.path();
        let op = Op::Create {
            path: CreatePath::parse(at.as_str(), false).expect("it is a path"),
            data: "".into(),
            acl: Acl::open(),
            mode: CreateMode::Persistent,
            parents: true,
        };
        ask(&mut store, None, operator(), Command::Write(op));
        let contender = Op::Create {
            path: CreatePath::parse(&format!("{}/n-", place.lock().znode()), true).expect("it is a path"),
            data: "".into(),
            acl: Acl::open(),
            mode: CreateMode::EphemeralSequential,
            parents: true,
        };
        ask(&mut store, Some(foreign()), operator(), Command::Write(contender));
    }
    if who == Who::Revoked {
        let revoke = AccessCommand::RevokeToken(TokenId([31; 16]));
        ask(&mut store, None, operator(), Command::Access(revoke));
    }
    (store, since)
}

/// Returns whether a refusal is one of those for a missing right.
fn is_denied(refusal: &Refusal) -> bool {
    match refusal {
        Refusal::Multi { refusal, .. } => is_denied(refusal),
        Refusal::Unauthenticated(_)
        | Refusal::Forbidden { .. }
        | Refusal::NotYourSession(_)
        | Refusal::Internal => true,
        _ => false,
    }
}

#[test]
fn everybody_asks_for_everything_everywhere() {
    let (mut cells, mut denied) = (0, 0);
    let mut kinds = BTreeSet::new();
    let mut wrong = Vec::new();
    for who in EVERYBODY {
        for place in PLACES {
            for (session, command, rule) in commands(place) {
                let (mut store, since) = world(who);
                // The turn is the next one of the session's connection.
                let command = match command {
                    Command::InTurn { turn, step } if session == Some(own()) => Command::InTurn {
                        turn: Turn { since, ..turn },
                        step,
                    },
                    command => command,
                };
                kinds.insert(kind(&command));
                let entry = EntryContext {
                    // Now the one token has expired.
                    time_ms: NOW_MS + u64::from(who == Who::Expired),
                    ..ENTRY
                };
                let allowed = rule.lets(who, place);
                let tree = (store.node_count(), store.sessions());
                let request = Request {
                    session,
                    caller: who.identities(),
                    ..Request::anonymous(command)
                };
                let early =
                    store
                        .seen_by(&request.caller)
                        .may_request(Rules::Current, session, &request.command);
                let mut events = Vec::new();
                let outcome = store.apply(&entry, request.clone(), &mut events).outcome;
                cells += 1;
                // The state does not know yet that the token has expired.
                if who != Who::Expired {
                    let refused = outcome.as_ref().err().filter(|refusal| is_denied(refusal));
                    assert_eq!(early.as_ref().err(), refused, "{who:?} at {place:?}: {request}");
                }
                let is_let = !outcome.as_ref().is_err_and(is_denied);
                if is_let != allowed {
                    wrong.push(format!("{who:?} at {place:?}, {rule:?}: {request}: {outcome:?}"));
                    continue;
                }
                if !is_let {
                    denied += 1;
                    assert_eq!(events, [], "what is refused changes nothing: {request}");
                    assert_eq!((store.node_count(), store.sessions()), tree, "{request}");
                    let why = match who {
                        Who::Nobody => Some(Unproven::Nothing),
                        Who::Expired => Some(Unproven::Expired),
                        Who::Revoked => Some(Unproven::Token),
                        _ => None,
                    };
                    let told = match &outcome {
                        Err(Refusal::Unauthenticated(unproven)) => Some(*unproven),
                        _ => None,
                    };
                    assert_eq!(told, why, "{who:?}: {request}");
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {cells} cells:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert_eq!(kinds.len(), KINDS, "each kind has its row: {kinds:?}");
    println!("{cells} cells, of which {denied} are refused");
}
