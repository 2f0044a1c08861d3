//! Who may do what, at the door of ZooKeeper's clients: every operation of the protocol, asked for by everybody, at places of
//! all kinds. Each cell is compared with a table for people that shares nothing with the code.

use std::collections::{BTreeMap, BTreeSet};

use access_token::TokenText;
use bytes::Bytes;
use raft_node::Node;
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
use crate::client::{Came, Client, EPHEMERAL, LONG, PERSISTENT, SEQUENTIAL, Stream, event, new_session, set};
use crate::cluster::{Cluster, SHORTEST};

/// Who asks, by a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    /// Without one.
    Nobody,
    /// One that has no role.
    Unknown,
    /// One whose role grants nothing.
    Nothing,
    /// One with one right at [`Place::Own`], and at the lock of that name.
    One(Right),
    /// The role `admin`.
    Admin,
}

const EVERYBODY: [Who; 9] = [
    Who::Nobody,
    Who::Unknown,
    Who::Nothing,
    Who::One(Right::Read),
    Who::One(Right::Lock),
    Who::One(Right::Write),
    Who::One(Right::Break),
    Who::One(Right::Administer),
    Who::Admin,
];

impl Who {
    /// What its certificate calls it.
    fn name(self) -> Option<String> {
        match self {
            Self::Nobody => None,
            Self::Unknown => Some("stranger".to_owned()),
            Self::Nothing => Some("nothing".to_owned()),
            Self::One(right) => Some(right.to_string()),
            Self::Admin => Some("root".to_owned()),
        }
    }

    fn role(self) -> Option<RoleName> {
        let name = match self {
            Self::Nobody | Self::Unknown => return None,
            Self::Nothing => "nothing".to_owned(),
            Self::One(right) => format!("may-{right}"),
            Self::Admin => return Some(RoleName::admin()),
        };
        Some(RoleName::parse(&name).unwrap())
    }
}

/// Where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Own,
    Below,
    Parent,
    Foreign,
    /// Its name begins as the own one's does.
    Sibling,
}

/// Those above before those below.
const PLACES: [Place; 5] = [
    Place::Parent,
    Place::Own,
    Place::Below,
    Place::Sibling,
    Place::Foreign,
];

impl Place {
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

    /// Whether the grants of those with one right cover it.
    fn is_covered(self) -> bool {
        matches!(self, Self::Own | Self::Below)
    }
}

/// Whom the table lets through.
#[derive(Debug, Clone, Copy)]
enum Rule {
    /// Whoever has a session.
    Everybody,
    /// Whoever has this right there.
    Needs(Right),
    /// Whoever has one of these.
    NeedsOne(Right, Right),
    /// Who has both.
    NeedsBoth,
}

impl Rule {
    fn lets(self, who: Who, place: Place) -> bool {
        let has = |right: Right| match who {
            Who::One(one) => one == right && place.is_covered(),
            Who::Admin => true,
            Who::Nobody | Who::Unknown | Who::Nothing => false,
        };
        match self {
            Self::Everybody => true,
            Self::Needs(right) => has(right),
            Self::NeedsOne(one, other) => has(one) || has(other),
            Self::NeedsBoth => who == Who::Admin,
        }
    }
}

/// The name of an operation. It has no wildcard, so that a new one is not forgotten here.
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

/// All of them. `check` is sent inside a multi, and `closeSession` has a test of its own.
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

/// ZooKeeper's flags of containers and of nodes with a time to live.
const CONTAINER: i32 = 4;
const TTL: i32 = 5;

/// Every operation, with what the table says. `gone` is there to be deleted, and `new` is not there.
fn requests(place: Place) -> Vec<(Request, Rule)> {
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
        // As a recipe enters the queue of a lock.
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
        // Of one's own only.
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
        // What is armed is told of only to those who may read, see `no_watch_tells_whom_it_must_not`.
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
        // Also where nothing is: that is something to know.
        let path = new.clone();
        all.push((Request::Exists { path, watch }, read));
    }
    for mode in [watch_mode::PERSISTENT, watch_mode::PERSISTENT_RECURSIVE] {
        let path = at.clone();
        all.push((Request::AddWatch { path, mode }, read));
    }
    all
}

/// Whether it was for want of a right that it was refused.
fn is_refused(outcome: &Outcome) -> bool {
    match outcome {
        Err(code) => *code == ErrorCode::NO_AUTH,
        Ok(Reply::Results(results)) => results.contains(&MultiResult::Error(ErrorCode::NO_AUTH)),
        Ok(_) => false,
    }
}

/// Whether it was done, or came to what it comes to for everybody.
fn is_done(request: &Request, outcome: &Outcome) -> bool {
    match (request, outcome) {
        (Request::Reconfig { .. }, Err(ErrorCode::RECONFIG_DISABLED)) => true,
        (Request::CheckWatches { .. } | Request::RemoveWatches { .. }, Err(ErrorCode::NO_WATCHER)) => true,
        // Nothing is there, and one who may read is told so.
        (Request::Exists { path, .. }, Err(ErrorCode::NO_NODE)) => path.ends_with("/new"),
        (_, Ok(Reply::Results(results))) => !results.iter().any(|it| matches!(it, MultiResult::Error(_))),
        (_, outcome) => outcome.is_ok(),
    }
}

fn parse(path: &str) -> ZPath {
    ZPath::parse(path).unwrap()
}

/// Asks as the cluster itself, whom nothing stops.
async fn order(node: &Node, command: Command) {
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
    let own = Place::Own.path();
    let grants = right.map(|right| vec![grant(&own, right), grant(&format!("/locks{own}"), right)]);
    let (role, grants) = (role.clone(), grants.unwrap_or_default());
    order(node, Command::Access(AccessCommand::SetRole { role, grants })).await;
}

/// A secured cluster of one node, with everybody's role. Who shows nothing is let in, and has no right.
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
    for who in EVERYBODY {
        let (Some(name), Some(role)) = (who.name(), who.role()) else {
            continue;
        };
        match who {
            Who::One(right) => set_role(node, &role, Some(right)).await,
            Who::Nothing => set_role(node, &role, None).await,
            Who::Nobody | Who::Unknown | Who::Admin => {}
        }
        let certificate = format!("CN={name}").into();
        order(
            node,
            Command::Access(AccessCommand::MapCertificate { certificate, role }),
        )
        .await;
    }
    for place in PLACES {
        order(node, put(&place.path())).await;
        order(node, put(&format!("/locks{}", place.path()))).await;
    }
    cluster
}

async fn everybody(certificates: &Certificates, cluster: &Cluster) -> BTreeMap<Who, Client> {
    let mut clients = BTreeMap::new();
    for who in EVERYBODY {
        let tls = certificates.client(who.name().as_deref());
        clients.insert(who, Client::connect_secured(cluster.address(1), &tls).await);
    }
    clients
}

/// What there is, with when it was changed last.
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
async fn every_operation_is_refused_to_everybody_who_has_not_the_right() {
    let certificates = Certificates::new();
    let cluster = secured(&certificates).await;
    let node = cluster.node(1);
    let mut clients = everybody(&certificates, &cluster).await;
    let (mut cells, mut refusals) = (0, 0);
    let mut seen = BTreeSet::new();
    for place in PLACES {
        let gone = format!("{}/gone", place.path());
        for (request, rule) in requests(place) {
            seen.insert(name(&request));
            for (who, client) in &mut clients {
                // What the cells before have left is taken away.
                for name in node.read(|store| {
                    let internal = Identities::internal();
                    let view = store.seen_by(&internal);
                    view.children(&parse(&place.path())).unwrap().0
                }) {
                    if name.starts_with("new") || &*name == "gone" {
                        let path = parse(&place.path()).join(&name).unwrap();
                        order(node, Command::Write(Op::Delete { path, version: -1 })).await;
                    }
                }
                order(node, put(&gone)).await;
                let before = tree(node);
                let (outcome, _) = client.call_and_hear(&request).await;
                let cell = format!("{who:?} asks for {request:?} at {place:?} ({rule:?}): {outcome:?}");
                if rule.lets(*who, place) {
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
    println!("{cells} cells, {refusals} of them refused");
    cluster.stop().await;
}

/// One-shot watches that come again tell what was missed, persistent ones what happens: but nobody what it may not read, neither
/// when they are armed nor when they are told.
#[tokio::test]
async fn no_watch_tells_whom_it_must_not() {
    let certificates = Certificates::new();
    let cluster = secured(&certificates).await;
    let node = cluster.node(1);
    let mut clients = everybody(&certificates, &cluster).await;
    for place in PLACES {
        let at = place.path();
        let again = Request::SetWatches {
            relative_zxid: 0,
            watches: SetWatches {
                data: vec![at.clone()],
                ..SetWatches::default()
            },
        };
        for (who, client) in &mut clients {
            let (outcome, heard) = client.call_and_hear(&again).await;
            assert_eq!(outcome, Ok(Reply::Done));
            let may = Rule::Needs(Right::Read).lets(*who, place);
            let missed = event(zk_wire::event_type::NODE_DATA_CHANGED, &at);
            let expected = may.then_some(missed).into_iter().collect::<Vec<_>>();
            assert_eq!(heard, expected, "{who:?} at {place:?}");
        }
    }

    let at = Place::Own.path();
    let watch = Request::AddWatch {
        path: at.clone(),
        mode: watch_mode::PERSISTENT_RECURSIVE,
    };
    let reader = Who::One(Right::Read);
    let client = clients.get_mut(&reader).unwrap();
    client.call(&watch).await.unwrap();
    let change = |data: &str| {
        Command::Write(Op::Set {
            path: parse(&Place::Own.path()),
            data: data.into(),
            version: -1,
        })
    };
    order(node, change("seen")).await;
    assert_eq!(
        client.hear().await,
        event(zk_wire::event_type::NODE_DATA_CHANGED, &at)
    );
    set_role(node, &reader.role().unwrap(), None).await;
    order(node, change("not seen")).await;
    let (outcome, heard) = client.call_and_hear(&Request::WhoAmI).await;
    assert!(outcome.is_ok());
    assert_eq!(heard, [], "its role allows nothing any more");
    cluster.stop().await;
}

/// A session's password is not enough: who has it has to be the one who opened the session, or to prove it before the
/// next sign of life.
#[tokio::test]
async fn a_session_is_its_openers() {
    let certificates = Certificates::new();
    let cluster = secured(&certificates).await;
    let at = cluster.address(1);
    let tls = |who: Who| certificates.client(who.name().as_deref());
    let writer = Who::One(Right::Write);
    let mut own = Client::connect_secured(at, &tls(writer)).await;
    let path = format!("{}/mine", Place::Own.path());
    own.create(&path, EPHEMERAL).await;
    let ticket = own.ticket();

    let thief = Stream::open_secured(at, &tls(Who::One(Right::Lock))).await;
    let stolen = Client::resume_on(thief, &ticket).await;
    assert!(stolen.is_none(), "it is told that there is no such session");
    assert!(own.call(&set(&path, "x")).await.is_ok(), "nobody was disturbed");

    let nobody = Stream::open_secured(at, &tls(Who::Nobody)).await;
    let mut unproven = Client::resume_on(nobody, &ticket).await.unwrap();
    assert_eq!(unproven.send(&Request::Ping).await, zk_wire::xid::PING);
    assert_eq!(unproven.receive(&Request::Ping).await, Came::End);

    let stream = Stream::open_secured(at, &tls(writer)).await;
    let mut back = Client::resume_on(stream, &ticket).await.unwrap();
    assert!(back.call(&set(&path, "y")).await.is_ok());
    cluster.stop().await;
}

/// Where there is no role for everybody nobody gets a session who shows nothing, and it ends of itself if its opener does not
/// count any more.
#[tokio::test]
async fn who_is_nobody_is_not_let_in() {
    let certificates = Certificates::new();
    let cluster = secured(&certificates).await;
    let node = cluster.node(1);
    let writer = Who::One(Right::Write);
    let tls = certificates.client(writer.name().as_deref());
    let stream = Stream::open_secured(cluster.address(1), &tls).await;
    let mut own = Client::with_session(stream, SHORTEST).await;
    let path = format!("{}/mine", Place::Own.path());
    own.create(&path, EPHEMERAL).await;
    let anonymous = RoleName::anonymous();
    order(node, Command::Access(AccessCommand::DeleteRole(anonymous))).await;

    for who in [Who::Nobody, Who::Unknown] {
        let tls = certificates.client(who.name().as_deref());
        let mut stream = Stream::open_secured(cluster.address(1), &tls).await;
        assert_eq!(stream.connect(&new_session(LONG)).await, None, "{who:?}");
    }
    assert!(own.call(&Request::Ping).await.is_ok());

    let certificate = format!("CN={}", writer.name().unwrap()).into();
    order(
        node,
        Command::Access(AccessCommand::UnmapCertificate(certificate)),
    )
    .await;
    assert_eq!(own.send(&Request::Ping).await, zk_wire::xid::PING);
    assert_eq!(own.receive(&Request::Ping).await, Came::End);
    crate::cluster::until("its session ends", || {
        node.read(|store| store.get(&parse(&path)).is_none())
    })
    .await;
    cluster.stop().await;
}

/// A token is shown as `addauth token …`: from then on the session is the token's, and ends with it.
#[tokio::test]
async fn a_token_is_shown_after_the_session_was_opened_and_counts_until_it_is_revoked() {
    let certificates = Certificates::new();
    let cluster = secured(&certificates).await;
    let node = cluster.node(1);
    let (id, hash, text) = TokenText::draw();
    let role = Who::One(Right::Write).role().unwrap();
    let description = "worker".into();
    let token = NewToken {
        id,
        hash,
        role,
        description,
        expires_at_ms: None,
    };
    order(node, Command::Access(AccessCommand::CreateToken(token))).await;
    let show = |text: &str| Request::Auth {
        kind: 0,
        scheme: "token".to_owned(),
        auth: Some(Bytes::copy_from_slice(text.as_bytes())),
    };

    let stream = Stream::open_secured(cluster.address(1), &certificates.client(None)).await;
    let mut client = Client::with_session(stream, SHORTEST).await;
    let path = format!("{}/mine", Place::Own.path());
    let mine = create(CreateCall::Create, path.clone(), EPHEMERAL);
    assert_eq!(
        client.call(&mine).await,
        Err(ErrorCode::NO_AUTH),
        "it is nobody yet"
    );
    assert_eq!(client.call(&show(&text)).await, Ok(Reply::Done));
    assert!(client.call(&mine).await.is_ok());

    let (_, _, other) = TokenText::draw();
    let wrong = text.replace(&text[40..50], &other[40..50]);
    for bad in [&other, &wrong, "x"] {
        let stream = Stream::open_secured(cluster.address(1), &certificates.client(None)).await;
        let mut eve = Client::with_session(stream, LONG).await;
        assert_eq!(eve.call(&show(bad)).await, Err(ErrorCode::AUTH_FAILED));
        assert_eq!(eve.receive(&mine).await, Came::End);
    }

    order(node, Command::Access(AccessCommand::RevokeToken(id))).await;
    assert_eq!(client.send(&Request::Ping).await, zk_wire::xid::PING);
    assert_eq!(client.receive(&Request::Ping).await, Came::End);
    crate::cluster::until("its session ends", || {
        node.read(|store| store.get(&parse(&path)).is_none())
    })
    .await;
    cluster.stop().await;
}
