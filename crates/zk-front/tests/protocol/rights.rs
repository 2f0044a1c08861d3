//! Authorization of ZooKeeper clients: every operation of the protocol, sent by every kind of caller, at
//! every kind of path. Each outcome is compared with a plain table that shares nothing with the code.

use std::collections::{BTreeMap, BTreeSet};

use access_token::TokenText;
use bytes::Bytes;
use lock_node::Node;
use zk_front::ZkConfig;
use zk_wire::{
    AclEntry, CreateCall, ErrorCode, MultiResult, Outcome, Reply, Request, SetWatches, watch_mode,
    watcher_type,
};
use znode_store::{
    AccessCommand, Acl, Command, CreateMode, CreatePath, Identities, Identity, NewToken, Op, PathGrant,
    Right, Rights, RoleName, TokenHash, TokenId, ZPath,
};

use crate::certificates::Certificates;
use crate::client::{
    Client, EPHEMERAL, LONG, PERSISTENT, Received, SEQUENTIAL, Stream, event, new_session, set,
};
use crate::cluster::{Cluster, MIN_SESSION_TIMEOUT, until};

/// Caller, identified by a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Caller {
    /// Client without a certificate.
    Anonymous,
    /// Certificate without a role.
    Unknown,
    /// Certificate whose role grants nothing.
    Nothing,
    /// Certificate with one permission at [`Target::Own`], and at the lock of that name.
    One(Right),
    /// Certificate with the role `admin`.
    Admin,
}

const ALL_CALLERS: [Caller; 9] = [
    Caller::Anonymous,
    Caller::Unknown,
    Caller::Nothing,
    Caller::One(Right::Read),
    Caller::One(Right::Lock),
    Caller::One(Right::Write),
    Caller::One(Right::Break),
    Caller::One(Right::Administer),
    Caller::Admin,
];

impl Caller {
    /// Returns the name in the certificate.
    fn name(self) -> Option<String> {
        match self {
            Self::Anonymous => None,
            Self::Unknown => Some("unmapped".to_owned()),
            Self::Nothing => Some("nothing".to_owned()),
            Self::One(right) => Some(right.to_string()),
            Self::Admin => Some("root".to_owned()),
        }
    }

    fn role(self) -> Option<RoleName> {
        let name = match self {
            Self::Anonymous | Self::Unknown => return None,
            Self::Nothing => "nothing".to_owned(),
            Self::One(right) => format!("may-{right}"),
            Self::Admin => return Some(RoleName::admin()),
        };
        Some(RoleName::parse(&name).unwrap())
    }
}

/// Path that a request refers to, relative to the grants of [`Caller::One`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Own,
    Below,
    Parent,
    Foreign,
    /// Path that begins with the characters of the own path.
    Sibling,
}

/// Parents before their children.
const TARGETS: [Target; 5] = [
    Target::Parent,
    Target::Own,
    Target::Below,
    Target::Sibling,
    Target::Foreign,
];

impl Target {
    fn name(self) -> &'static str {
        match self {
            Self::Own => "team/own",
            Self::Below => "team/own/deep",
            Self::Parent => "team",
            Self::Foreign => "other",
            Self::Sibling => "team/owner",
        }
    }

    fn path(self) -> String {
        format!("/{}", self.name())
    }

    /// Returns whether the grants of [`Caller::One`] cover the path.
    fn is_covered(self) -> bool {
        matches!(self, Self::Own | Self::Below)
    }
}

/// Callers that the table admits.
#[derive(Debug, Clone, Copy)]
enum Rule {
    /// Every caller with a session.
    Everybody,
    /// Callers with this permission at the path.
    Needs(Right),
    /// Callers with one of these permissions.
    NeedsOne(Right, Right),
    /// Callers with both permissions of the test, which only the administrator has.
    NeedsBoth,
}

impl Rule {
    fn admits(self, who: Caller, place: Target) -> bool {
        let has = |right: Right| match who {
            Caller::One(one) => one == right && place.is_covered(),
            Caller::Admin => true,
            Caller::Anonymous | Caller::Unknown | Caller::Nothing => false,
        };
        match self {
            Self::Everybody => true,
            Self::Needs(right) => has(right),
            Self::NeedsOne(one, other) => has(one) || has(other),
            Self::NeedsBoth => who == Caller::Admin,
        }
    }
}

/// Returns the name of an operation. The match has no wildcard, so that a new operation is not forgotten.
fn name(request: &Request) -> &'static str {
    match request {
        Request::Create { call, .. } => match call {
            CreateCall::Create => "create",
            CreateCall::Create2 => "create2",
            CreateCall::Container => "createContainer",
            CreateCall::Ttl(_) => "createTTL",
        },
        Request::Delete { .. } => "delete",
        Request::SetData { .. } => "setData",
        Request::SetAcl { .. } => "setACL",
        Request::Check { .. } => "check",
        Request::Multi(_) => "multi",
        Request::Exists { .. } => "exists",
        Request::GetData { .. } => "getData",
        Request::GetAcl { .. } => "getACL",
        Request::GetChildren { .. } => "getChildren",
        Request::GetChildren2 { .. } => "getChildren2",
        Request::GetAllChildrenNumber { .. } => "getAllChildrenNumber",
        Request::GetEphemerals { .. } => "getEphemerals",
        Request::MultiRead(_) => "multiRead",
        Request::Sync { .. } => "sync",
        Request::AddWatch { .. } => "addWatch",
        Request::CheckWatches { .. } => "checkWatches",
        Request::RemoveWatches { .. } => "removeWatches",
        Request::SetWatches { .. } => "setWatches",
        Request::SetWatches2 { .. } => "setWatches2",
        Request::Ping => "ping",
        Request::CloseSession => "closeSession",
        Request::WhoAmI => "whoAmI",
        Request::Auth { .. } => "auth",
        Request::Sasl { .. } => "sasl",
        Request::Reconfig { .. } => "reconfig",
    }
}

/// All operations. `check` is sent inside a multi, and `closeSession` has a test of its own.
const NAMES: [&str; 27] = [
    "addWatch",
    "auth",
    "checkWatches",
    "create",
    "create2",
    "createContainer",
    "createTTL",
    "delete",
    "exists",
    "getACL",
    "getAllChildrenNumber",
    "getChildren",
    "getChildren2",
    "getData",
    "getEphemerals",
    "multi",
    "multiRead",
    "ping",
    "reconfig",
    "removeWatches",
    "sasl",
    "setACL",
    "setData",
    "setWatches",
    "setWatches2",
    "sync",
    "whoAmI",
];

fn open_acl() -> Option<Vec<AclEntry>> {
    Some(vec![AclEntry {
        perms: 31,
        scheme: "world".to_owned(),
        id: "anyone".to_owned(),
    }])
}

fn create(call: CreateCall, path: String, flags: i32) -> Request {
    Request::Create {
        call,
        path,
        data: Some(Bytes::from_static(b"new")),
        acl: open_acl(),
        flags,
    }
}

/// ZooKeeper's flags of containers and TTL nodes.
const CONTAINER: i32 = 4;
const TTL: i32 = 5;

/// Returns every operation with its rule. The path `gone` exists and `new` does not.
fn requests(place: Target) -> Vec<(Request, Rule)> {
    let at = place.path();
    let (new, gone) = (format!("{at}/new"), format!("{at}/gone"));
    let contender = format!("/locks{at}/n-");
    let delete = |path: &str| Request::Delete {
        path: path.to_owned(),
        version: -1,
    };
    let check = Request::Check {
        path: at.clone(),
        version: -1,
    };
    let data = |path: &str, watch| Request::GetData {
        path: path.to_owned(),
        watch,
    };
    let children = |path: &str, watch| Request::GetChildren {
        path: path.to_owned(),
        watch,
    };
    let watches = || SetWatches {
        data: vec![at.clone()],
        child: vec![at.clone()],
        exist: vec![new.clone()],
        ..SetWatches::default()
    };
    let (read, write) = (Rule::Needs(Right::Read), Rule::Needs(Right::Write));
    let mut all = vec![
        (create(CreateCall::Create, new.clone(), PERSISTENT), write),
        (create(CreateCall::Create, new.clone(), EPHEMERAL), write),
        (create(CreateCall::Create, new.clone(), SEQUENTIAL), write),
        (
            create(CreateCall::Create2, new.clone(), EPHEMERAL | SEQUENTIAL),
            write,
        ),
        (create(CreateCall::Container, new.clone(), CONTAINER), write),
        (create(CreateCall::Ttl(60_000), new.clone(), TTL), write),
        // A recipe that enters the queue of a lock.
        (
            create(CreateCall::Create, contender, EPHEMERAL | SEQUENTIAL),
            Rule::NeedsOne(Right::Write, Right::Lock),
        ),
        (delete(&gone), write),
        (set(&at, "x"), write),
        (
            Request::SetAcl {
                path: at.clone(),
                acl: open_acl(),
                version: -1,
            },
            Rule::Needs(Right::Administer),
        ),
        (
            Request::Multi(vec![
                create(CreateCall::Create, new.clone(), PERSISTENT),
                set(&new, "x"),
                delete(&new),
            ]),
            write,
        ),
        (Request::Multi(vec![check.clone()]), read),
        (Request::Multi(vec![check, set(&at, "x")]), Rule::NeedsBoth),
        (
            Request::GetAcl { path: at.clone() },
            Rule::NeedsOne(Right::Read, Right::Administer),
        ),
        (Request::GetAllChildrenNumber { path: at.clone() }, read),
        (
            Request::MultiRead(vec![data(&at, false), children(&at, false)]),
            read,
        ),
        (Request::Sync { path: at.clone() }, Rule::Everybody),
        // Returns only the caller's own znodes.
        (Request::GetEphemerals { prefix: at.clone() }, Rule::Everybody),
        (Request::WhoAmI, Rule::Everybody),
        (Request::Ping, Rule::Everybody),
        (
            Request::Auth {
                kind: 0,
                scheme: "ip".to_owned(),
                auth: None,
            },
            Rule::Everybody,
        ),
        (Request::Sasl { token: None }, Rule::Everybody),
        (
            Request::Reconfig {
                joining_servers: None,
                leaving_servers: None,
                new_members: None,
                from_config: -1,
            },
            Rule::Everybody,
        ),
        (
            Request::CheckWatches {
                path: at.clone(),
                kind: watcher_type::ANY,
            },
            Rule::Everybody,
        ),
        // Notifications of an armed watch are authorized on delivery, see
        // `watches_notify_only_authorized_callers`.
        (
            Request::SetWatches {
                relative_zxid: i64::MAX,
                watches: watches(),
            },
            Rule::Everybody,
        ),
        (
            Request::SetWatches2 {
                relative_zxid: i64::MAX,
                watches: watches(),
            },
            Rule::Everybody,
        ),
        (
            Request::RemoveWatches {
                path: at.clone(),
                kind: watcher_type::ANY,
            },
            Rule::Everybody,
        ),
    ];
    for watch in [false, true] {
        let path = at.clone();
        all.push((data(&at, watch), read));
        all.push((children(&at, watch), read));
        all.push((
            Request::GetChildren2 {
                path: path.clone(),
                watch,
            },
            read,
        ));
        all.push((Request::Exists { path, watch }, read));
        // Also where no znode exists: that is information, too.
        let path = new.clone();
        all.push((Request::Exists { path, watch }, read));
    }
    for mode in [watch_mode::PERSISTENT, watch_mode::PERSISTENT_RECURSIVE] {
        let path = at.clone();
        all.push((Request::AddWatch { path, mode }, read));
    }
    all
}

/// Returns whether the request was denied for a missing permission.
fn is_refused(outcome: &Outcome) -> bool {
    match outcome {
        Err(code) => *code == ErrorCode::NO_AUTH,
        Ok(Reply::Results(results)) => results.contains(&MultiResult::Error(ErrorCode::NO_AUTH)),
        Ok(_) => false,
    }
}

/// Returns whether the request was executed, or failed as it does for every caller.
fn is_done(request: &Request, outcome: &Outcome) -> bool {
    match (request, outcome) {
        (Request::Reconfig { .. }, Err(ErrorCode::RECONFIG_DISABLED)) => true,
        (Request::CheckWatches { .. } | Request::RemoveWatches { .. }, Err(ErrorCode::NO_WATCHER)) => true,
        // No znode exists, and an authorized reader gets that answer.
        (Request::Exists { path, .. }, Err(ErrorCode::NO_NODE)) => path.ends_with("/new"),
        (_, Ok(Reply::Results(results))) => !results.iter().any(|it| matches!(it, MultiResult::Error(_))),
        (_, outcome) => outcome.is_ok(),
    }
}

fn parse(path: &str) -> ZPath {
    ZPath::parse(path).unwrap()
}

/// Executes a command as the cluster itself, which needs no permissions.
async fn execute_internal(node: &Node, command: Command) {
    let request = znode_store::Request {
        caller: Identities::internal(),
        ..znode_store::Request::anonymous(command)
    };
    let applied = node.propose(request).await.unwrap();
    assert!(applied.outcome.is_ok(), "{applied:?}");
}

fn put(path: &str) -> Command {
    Command::Write(Op::Create {
        path: CreatePath::parse(path, false).unwrap(),
        data: "data".into(),
        acl: Acl::open(),
        mode: CreateMode::Persistent,
        parents: true,
    })
}

async fn set_role(node: &Node, role: &RoleName, right: Option<Right>) {
    let grant = |path: &str, right| PathGrant {
        prefix: parse(path),
        rights: Rights::of([right]),
    };
    let own = Target::Own.path();
    let grants = right.map(|right| vec![grant(&own, right), grant(&format!("/locks{own}"), right)]);
    let (role, grants) = (role.clone(), grants.unwrap_or_default());
    execute_internal(node, Command::Access(AccessCommand::SetRole { role, grants })).await;
}

/// Starts a secured cluster of one node with the roles of all callers. Clients without credentials may
/// connect, but have no permissions.
async fn secured(certificates: &Certificates) -> Cluster {
    let tls = Some(certificates.server());
    let cluster = Cluster::start_secured(1, ZkConfig::default(), tls).await;
    let node = cluster.node(1);
    let secure = AccessCommand::Secure {
        token: TokenId([1; 16]),
        hash: TokenHash([1; 32]),
        description: "first".into(),
        anonymous: Some(Vec::new()),
    };
    let operator = znode_store::Request {
        caller: Identities::new([Identity::Super]),
        ..znode_store::Request::anonymous(Command::Access(secure))
    };
    assert!(node.propose(operator).await.unwrap().outcome.is_ok());
    for who in ALL_CALLERS {
        let (Some(name), Some(role)) = (who.name(), who.role()) else {
            continue;
        };
        match who {
            Caller::One(right) => set_role(node, &role, Some(right)).await,
            Caller::Nothing => set_role(node, &role, None).await,
            Caller::Anonymous | Caller::Unknown | Caller::Admin => {}
        }
        let certificate = format!("CN={name}").into();
        execute_internal(
            node,
            Command::Access(AccessCommand::MapCertificate { certificate, role }),
        )
        .await;
    }
    for place in TARGETS {
        execute_internal(node, put(&place.path())).await;
        execute_internal(node, put(&format!("/locks{}", place.path()))).await;
    }
    cluster
}

async fn connect_all(certificates: &Certificates, cluster: &Cluster) -> BTreeMap<Caller, Client> {
    let mut clients = BTreeMap::new();
    for who in ALL_CALLERS {
        let tls = certificates.client(who.name().as_deref());
        clients.insert(who, Client::connect_secured(cluster.address(1), &tls).await);
    }
    clients
}

/// Returns all znodes with their data, stats and lists.
fn tree(node: &Node) -> Vec<String> {
    fn add(view: &znode_store::View<'_>, path: &ZPath, all: &mut Vec<String>) {
        let (data, stat) = view.get(path).unwrap();
        all.push(format!(
            "{path} {data:?} {stat:?} {:?}",
            view.acl(path).unwrap().0
        ));
        for name in view.children(path).unwrap().0 {
            add(view, &path.join(&name).unwrap(), all);
        }
    }
    let mut all = Vec::new();
    node.read(|store| add(&store.seen_by(&Identities::internal()), &ZPath::root(), &mut all));
    all
}

#[tokio::test]
async fn every_operation_is_denied_without_its_permission() {
    let certificates = Certificates::new();
    let cluster = secured(&certificates).await;
    let node = cluster.node(1);
    let mut clients = connect_all(&certificates, &cluster).await;
    let (mut cells, mut refusals) = (0, 0);
    let mut seen = BTreeSet::new();
    for place in TARGETS {
        let gone = format!("{}/gone", place.path());
        for (request, rule) in requests(place) {
            seen.insert(name(&request));
            for (who, client) in &mut clients {
                // Remove what earlier requests have created.
                for name in node.read(|store| {
                    let internal = Identities::internal();
                    let view = store.seen_by(&internal);
                    view.children(&parse(&place.path())).unwrap().0
                }) {
                    if name.starts_with("new") || &*name == "gone" {
                        let path = parse(&place.path()).join(&name).unwrap();
                        execute_internal(node, Command::Write(Op::Delete { path, version: -1 })).await;
                    }
                }
                execute_internal(node, put(&gone)).await;
                let before = tree(node);
                let (outcome, _) = client.call_with_notifications(&request).await;
                let cell = format!("{who:?} sends {request:?} at {place:?} ({rule:?}): {outcome:?}");
                if rule.admits(*who, place) {
                    assert!(is_done(&request, &outcome), "{cell}");
                } else {
                    assert!(is_refused(&outcome), "{cell}");
                    assert_eq!(tree(node), before, "{cell}");
                    refusals += 1;
                }
                cells += 1;
            }
        }
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), NAMES);
    println!("{cells} cells, {refusals} of them denied");
    cluster.stop().await;
}

/// Re-armed one-shot watches report missed changes, and persistent ones report new ones. Neither reports a
/// change to a caller without the read permission, whether it lacks it at arming or at delivery.
#[tokio::test]
async fn watches_notify_only_authorized_callers() {
    let certificates = Certificates::new();
    let cluster = secured(&certificates).await;
    let node = cluster.node(1);
    let mut clients = connect_all(&certificates, &cluster).await;
    for place in TARGETS {
        let at = place.path();
        let again = Request::SetWatches {
            relative_zxid: 0,
            watches: SetWatches {
                data: vec![at.clone()],
                ..SetWatches::default()
            },
        };
        for (who, client) in &mut clients {
            let (outcome, heard) = client.call_with_notifications(&again).await;
            assert_eq!(outcome, Ok(Reply::Done));
            let may = Rule::Needs(Right::Read).admits(*who, place);
            let missed = event(zk_wire::event_type::NODE_DATA_CHANGED, &at);
            let expected = may.then_some(missed).into_iter().collect::<Vec<_>>();
            assert_eq!(heard, expected, "{who:?} at {place:?}");
        }
    }

    let at = Target::Own.path();
    let watch = Request::AddWatch {
        path: at.clone(),
        mode: watch_mode::PERSISTENT_RECURSIVE,
    };
    let reader = Caller::One(Right::Read);
    let client = clients.get_mut(&reader).unwrap();
    client.call(&watch).await.unwrap();
    let change = |data: &str| {
        Command::Write(Op::Set {
            path: parse(&Target::Own.path()),
            data: data.into(),
            version: -1,
        })
    };
    execute_internal(node, change("seen")).await;
    assert_eq!(
        client.notification().await,
        event(zk_wire::event_type::NODE_DATA_CHANGED, &at)
    );
    set_role(node, &reader.role().unwrap(), None).await;
    execute_internal(node, change("not seen")).await;
    let (outcome, heard) = client.call_with_notifications(&Request::WhoAmI).await;
    assert!(outcome.is_ok());
    assert_eq!(heard, [], "its role has no permissions any more");
    cluster.stop().await;
}

/// A write without the right is answered from the state of the node and takes no turn, also between others; a write that needs a pending one
/// waits for it.
#[tokio::test]
async fn refused_writes_keep_their_place_and_cost_no_log_entry() {
    let certificates = Certificates::new();
    let cluster = secured(&certificates).await;
    let node = cluster.node(1);
    let tls = certificates.client(Caller::One(Right::Lock).name().as_deref());
    let mut client = Client::connect_secured(cluster.address(1), &tls).await;
    // The leader proposes this setting last; from then on the node adds no log entry of its own.
    until("the state has its settings", || {
        !node.read(|store| store.lets_waits_outlive_rights())
    })
    .await;
    let before = node.read(|store| store.zxid());
    let forbidden = set(&Target::Own.path(), "x");
    for _ in 0..3 {
        assert_eq!(client.call(&forbidden).await, Err(ErrorCode::NO_AUTH));
    }
    assert_eq!(node.read(|store| store.zxid()), before);

    // With the right to lock alone the client may delete its own contender, once it exists.
    let contender = format!("/locks{}/n-0000000007", Target::Own.path());
    let pipelined = [
        (create(CreateCall::Create, contender.clone(), EPHEMERAL), Ok(())),
        (forbidden.clone(), Err(ErrorCode::NO_AUTH)),
        (
            Request::Delete {
                path: contender.clone(),
                version: -1,
            },
            Ok(()),
        ),
        (forbidden, Err(ErrorCode::NO_AUTH)),
        (create(CreateCall::Create, contender, EPHEMERAL), Ok(())),
    ];
    for (request, _) in &pipelined {
        client.send(request).await;
    }
    for (request, expected) in &pipelined {
        let Received::Reply { outcome, .. } = client.receive(request).await else {
            panic!("the connection ended before the reply to {request:?}");
        };
        assert_eq!(outcome.map(|_| ()), *expected, "{request:?}");
    }
    assert_eq!(client.call(&Request::CloseSession).await, Ok(Reply::Done));
    cluster.stop().await;
}

/// A session's password does not suffice to use it: a client that resumes it has to have the identity of the
/// opener, or to authenticate before the next heartbeat.
#[tokio::test]
async fn session_belongs_to_the_identity_that_opened_it() {
    let certificates = Certificates::new();
    let cluster = secured(&certificates).await;
    let at = cluster.address(1);
    let tls = |who: Caller| certificates.client(who.name().as_deref());
    let writer = Caller::One(Right::Write);
    let mut own = Client::connect_secured(at, &tls(writer)).await;
    let path = format!("{}/mine", Target::Own.path());
    own.create(&path, EPHEMERAL).await;
    let resume_request = own.resume_request();

    let thief = Stream::open_secured(at, &tls(Caller::One(Right::Lock))).await;
    let stolen = Client::resume_on(thief, &resume_request).await;
    assert!(stolen.is_none(), "the server reports an expired session");
    assert!(
        own.call(&set(&path, "x")).await.is_ok(),
        "the owner's connection still works"
    );

    let anonymous = Stream::open_secured(at, &tls(Caller::Anonymous)).await;
    let mut unproven = Client::resume_on(anonymous, &resume_request).await.unwrap();
    assert_eq!(unproven.send(&Request::Ping).await, zk_wire::xid::PING);
    assert_eq!(unproven.receive(&Request::Ping).await, Received::End);

    let stream = Stream::open_secured(at, &tls(writer)).await;
    let mut back = Client::resume_on(stream, &resume_request).await.unwrap();
    assert!(back.call(&set(&path, "y")).await.is_ok());
    cluster.stop().await;
}

/// Without the role `anonymous`, clients without credentials get no session, and a session expires when its
/// owner's credentials become invalid.
#[tokio::test]
async fn anonymous_clients_are_rejected_without_an_anonymous_role() {
    let certificates = Certificates::new();
    let cluster = secured(&certificates).await;
    let node = cluster.node(1);
    let writer = Caller::One(Right::Write);
    let tls = certificates.client(writer.name().as_deref());
    let stream = Stream::open_secured(cluster.address(1), &tls).await;
    let mut own = Client::with_session(stream, MIN_SESSION_TIMEOUT).await;
    let path = format!("{}/mine", Target::Own.path());
    own.create(&path, EPHEMERAL).await;
    let anonymous = RoleName::anonymous();
    execute_internal(node, Command::Access(AccessCommand::DeleteRole(anonymous))).await;

    for who in [Caller::Anonymous, Caller::Unknown] {
        let tls = certificates.client(who.name().as_deref());
        let mut stream = Stream::open_secured(cluster.address(1), &tls).await;
        assert_eq!(stream.connect(&new_session(LONG)).await, None, "{who:?}");
    }
    assert!(own.call(&Request::Ping).await.is_ok());

    let certificate = format!("CN={}", writer.name().unwrap()).into();
    execute_internal(
        node,
        Command::Access(AccessCommand::UnmapCertificate(certificate)),
    )
    .await;
    assert_eq!(own.send(&Request::Ping).await, zk_wire::xid::PING);
    assert_eq!(own.receive(&Request::Ping).await, Received::End);
    crate::cluster::until("the session expires", || {
        node.read(|store| store.get(&parse(&path)).is_none())
    })
    .await;
    cluster.stop().await;
}

/// A client authenticates with `addauth token …`. From then on the session depends on the token.
#[tokio::test]
async fn token_added_to_a_session_is_valid_until_revoked() {
    let certificates = Certificates::new();
    let cluster = secured(&certificates).await;
    let node = cluster.node(1);
    let (id, hash, text) = TokenText::draw();
    let role = Caller::One(Right::Write).role().unwrap();
    let description = "worker".into();
    let token = NewToken {
        id,
        hash,
        role,
        description,
        expires_at_ms: None,
    };
    execute_internal(node, Command::Access(AccessCommand::CreateToken(token))).await;
    let show = |text: &str| Request::Auth {
        kind: 0,
        scheme: "token".to_owned(),
        auth: Some(Bytes::copy_from_slice(text.as_bytes())),
    };

    let stream = Stream::open_secured(cluster.address(1), &certificates.client(None)).await;
    let mut client = Client::with_session(stream, MIN_SESSION_TIMEOUT).await;
    let path = format!("{}/mine", Target::Own.path());
    let mine = create(CreateCall::Create, path.clone(), EPHEMERAL);
    assert_eq!(
        client.call(&mine).await,
        Err(ErrorCode::NO_AUTH),
        "not authenticated yet"
    );
    assert_eq!(client.call(&show(&text)).await, Ok(Reply::Done));
    assert!(client.call(&mine).await.is_ok());

    let (_, _, other) = TokenText::draw();
    let wrong = text.replace(&text[40..50], &other[40..50]);
    for bad in [&other, &wrong, "x"] {
        let stream = Stream::open_secured(cluster.address(1), &certificates.client(None)).await;
        let mut eve = Client::with_session(stream, LONG).await;
        assert_eq!(eve.call(&show(bad)).await, Err(ErrorCode::AUTH_FAILED));
        assert_eq!(eve.receive(&mine).await, Received::End);
    }

    execute_internal(node, Command::Access(AccessCommand::RevokeToken(id))).await;
    assert_eq!(client.send(&Request::Ping).await, zk_wire::xid::PING);
    assert_eq!(client.receive(&Request::Ping).await, Received::End);
    crate::cluster::until("the session expires", || {
        node.read(|store| store.get(&parse(&path)).is_none())
    })
    .await;
    cluster.stop().await;
}
