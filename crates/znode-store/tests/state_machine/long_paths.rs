//! Costs of long paths: one command creates and removes few of them, and locks have none.

#![expect(clippy::unwrap_used, reason = "a step that must succeed may say so shortly")]

use znode_store::{
    Acl, Command, CreateMode, CreatePath, Data, EntryContext, Limited, MAX_LONG_PATHS_BYTES, Op, Outcome,
    Password, Refusal, Reply, Request, SessionId, Store, ZPath,
};

const SESSION: SessionId = SessionId(1);

fn apply(store: &mut Store, session: Option<SessionId>, command: Command) -> Outcome {
    let entry = EntryContext { time_ms: 1, term: 1 };
    let request = Request {
        session,
        ..Request::anonymous(command)
    };
    store.apply(&entry, request, &mut Vec::new()).outcome
}

fn open(store: &mut Store, session: SessionId) {
    let open = Command::OpenSession {
        session,
        password: Password([0; 16]),
        timeout_ms: 10_000,
        name: "".into(),
        address: "".into(),
    };
    apply(store, None, open).unwrap();
}

fn create(path: &str, mode: CreateMode) -> Op {
    Op::Create {
        path: CreatePath::parse(path, mode.is_sequential()).unwrap(),
        data: Data::empty(),
        acl: Acl::open(),
        mode,
        parents: true,
    }
}

fn delete_recursive(path: &str) -> Op {
    Op::DeleteRecursive {
        path: ZPath::parse(path).unwrap(),
    }
}

fn too_many(path: &str) -> Refusal {
    Refusal::LimitReached {
        what: Limited::LongPaths(ZPath::parse(path).unwrap()),
        limit: MAX_LONG_PATHS_BYTES as u32,
    }
}

#[test]
fn the_long_paths_of_all_operations_of_a_command_count_together() {
    let mut store = Store::new();
    let before = store.node_count();
    // With all that is above them some eight mebibytes each.
    let one = format!("/a{}", "/d".repeat(2_800));
    let other = format!("/b{}", "/d".repeat(3_000));
    let below = |path: &str| create(&format!("{path}/n"), CreateMode::Persistent);
    let refused = |index| {
        let refusal = too_many(&other).into();
        Err(Refusal::Multi { index, refusal })
    };
    let both = Command::Multi(vec![below(&one), below(&other)]);
    assert!(apply(&mut store, None, both) == refused(1));
    assert_eq!(store.node_count(), before);
    apply(&mut store, None, Command::Write(below(&one))).unwrap();
    let count = store.node_count();
    let check = Op::Check {
        path: ZPath::root(),
        version: -1,
    };
    let in_place = Command::Multi(vec![delete_recursive("/a"), check, below(&other)]);
    assert!(apply(&mut store, None, in_place) == refused(2));
    assert_eq!(store.node_count(), count);
    apply(&mut store, None, Command::Write(delete_recursive("/a"))).unwrap();
    assert_eq!(store.node_count(), before);
}

#[test]
fn a_session_may_have_few_ephemeral_znodes_at_long_paths() {
    let mut store = Store::new();
    let long = format!("/{}", "l".repeat(500_000));
    for session in [1, 2, 3].map(SessionId) {
        open(&mut store, session);
    }
    apply(
        &mut store,
        None,
        Command::Write(create(&long, CreateMode::Persistent)),
    )
    .unwrap();
    let path = format!("{long}/n-");
    let mut ephemeral = |session| {
        let op = create(&path, CreateMode::EphemeralSequential);
        apply(&mut store, Some(session), Command::Write(op))
    };
    let most = MAX_LONG_PATHS_BYTES / (path.len() + 10);
    for _ in 0..most {
        assert!(matches!(ephemeral(SESSION), Ok(Reply::Created { .. })));
    }
    let refused = Refusal::LimitReached {
        what: Limited::Ephemerals(SESSION),
        limit: most as u32,
    };
    assert!(ephemeral(SESSION) == Err(refused));
    for _ in 0..most / 2 {
        ephemeral(SessionId(2)).unwrap();
        ephemeral(SessionId(3)).unwrap();
    }
    let all = [9, 2, 3, 1].map(SessionId);
    assert_eq!(store.ending_together(&all), [&all[..3], &all[3..]]);
    apply(
        &mut store,
        Some(SESSION),
        Command::CloseSession { session: SESSION },
    )
    .unwrap();
    // Those at short paths are not counted.
    for _ in 0..=most {
        let op = create("/short/n-", CreateMode::EphemeralSequential);
        apply(&mut store, Some(SessionId(2)), Command::Write(op)).unwrap();
    }
    let all = [2, 3].map(SessionId);
    assert_eq!(store.ending_together(&all), [&all[..]]);
}

#[test]
fn an_ephemeral_znode_at_a_long_path_is_no_contender() {
    let mut store = Store::new();
    open(&mut store, SESSION);
    for (path, contenders) in [
        ("/locks/a/lock-".to_owned(), 1),
        (format!("/locks/b/{}lock-", "x".repeat(1_024)), 0),
        (format!("/locks/c{}/lock-", "/c".repeat(30)), 0),
    ] {
        let op = create(&path, CreateMode::EphemeralSequential);
        let before = store.contenders_of(SESSION).len();
        apply(&mut store, Some(SESSION), Command::Write(op)).unwrap();
        assert_eq!(store.contenders_of(SESSION).len() - before, contenders, "{path}");
    }
    apply(
        &mut store,
        Some(SESSION),
        Command::CloseSession { session: SESSION },
    )
    .unwrap();
}
