//! Tests that no watch reveals what the access policies of a secured state hide: not when it fires,
//! not when it is re-armed, and not when the state is replaced.

use znode_store::{
    AccessCommand, Acl, Command, CreateMode, CreatePath, EntryContext, Event, Identities, Identity, NewToken,
    Op, PathGrant, Request, Right, Rights, RoleName, Store, TokenHash, TokenId, ZPath, Zxid,
};
use znode_watch::{WatchKind, WatchLimits, WatchLists, Watches};

const ADMIN: TokenId = TokenId([1; 16]);
const READER: TokenId = TokenId([2; 16]);

fn by(token: TokenId) -> Identities {
    Identities::new([Identity::Token(token)])
}

fn path(text: &str) -> ZPath {
    ZPath::parse(text).unwrap()
}

fn apply(store: &mut Store, caller: Identities, command: Command) -> (Zxid, Vec<Event>) {
    let mut events = Vec::new();
    let entry = EntryContext { time_ms: 0, term: 1 };
    let request = Request {
        caller,
        ..Request::anonymous(command)
    };
    let applied = store.apply(&entry, request.clone(), &mut events);
    assert!(applied.outcome.is_ok(), "{request}: {applied}");
    (applied.zxid, events)
}

fn create(store: &mut Store, at: &str) -> (Zxid, Vec<Event>) {
    let op = Op::Create {
        path: CreatePath::parse(at, false).unwrap(),
        data: "".into(),
        acl: Acl::open(),
        mode: CreateMode::Persistent,
        parents: true,
    };
    apply(store, by(ADMIN), Command::Write(op))
}

fn set(store: &mut Store, at: &str) -> (Zxid, Vec<Event>) {
    let op = Op::Set {
        path: path(at),
        data: "x".into(),
        version: -1,
    };
    apply(store, by(ADMIN), Command::Write(op))
}

fn allow(store: &mut Store, at: &str) {
    let role = RoleName::parse("reader").unwrap();
    let grants = vec![PathGrant {
        prefix: path(at),
        rights: Rights::of([Right::Read]),
    }];
    apply(
        store,
        by(ADMIN),
        Command::Access(AccessCommand::SetRole { role, grants }),
    );
}

/// Returns a secured store with `/a` and `/b`, and a token that may read `/a`.
fn secured() -> Store {
    let mut store = Store::new();
    let secure = AccessCommand::Secure {
        token: ADMIN,
        hash: TokenHash([1; 32]),
        description: "".into(),
        anonymous: None,
    };
    apply(
        &mut store,
        Identities::new([Identity::Super]),
        Command::Access(secure),
    );
    allow(&mut store, "/a");
    let token = AccessCommand::CreateToken(NewToken {
        id: READER,
        hash: TokenHash([2; 32]),
        role: RoleName::parse("reader").unwrap(),
        description: "".into(),
        expires_at_ms: None,
    });
    apply(&mut store, by(ADMIN), Command::Access(token));
    create(&mut store, "/a");
    create(&mut store, "/b");
    store
}

/// Fires the events of one command, and returns the reader's notices.
fn fire(watches: &mut Watches, store: &Store, (zxid, events): (Zxid, Vec<Event>)) -> Vec<String> {
    let mut notified = Vec::new();
    for event in &events {
        if let Event::Znode(event) = event {
            watches.fire(zxid, event, store.visibility(), |_, notice| {
                notified.push(notice.to_string())
            });
        }
    }
    notified
}

#[test]
fn policies_filter_fired_watches() {
    let mut store = secured();
    let mut watches = Watches::new(WatchLimits::default(), 1);
    let reader = watches.connect(by(READER));
    // The watch covers `/a` and `/b` from the root, which the reader may not read.
    watches
        .arm(reader, WatchKind::PersistentRecursive, &path("/"))
        .unwrap();
    let change = set(&mut store, "/a");
    assert_eq!(fire(&mut watches, &store, change).len(), 1);
    let change = set(&mut store, "/b");
    assert_eq!(fire(&mut watches, &store, change), [""; 0]);
    let change = create(&mut store, "/b/c");
    assert_eq!(fire(&mut watches, &store, change), [""; 0]);
    // The rights at the time of the event count.
    allow(&mut store, "/b");
    let change = set(&mut store, "/a");
    assert_eq!(fire(&mut watches, &store, change), [""; 0]);
    let change = set(&mut store, "/b");
    assert_eq!(fire(&mut watches, &store, change).len(), 1);
    apply(
        &mut store,
        by(ADMIN),
        Command::Access(AccessCommand::RevokeToken(READER)),
    );
    let change = set(&mut store, "/b");
    assert_eq!(fire(&mut watches, &store, change), [""; 0]);
}

#[test]
fn policies_filter_rearmed_watches() {
    let mut store = secured();
    let since = store.zxid();
    set(&mut store, "/a");
    set(&mut store, "/b");
    create(&mut store, "/c");
    let mut watches = Watches::new(WatchLimits::default(), 1);
    let reader = watches.connect(by(READER));
    let lists = WatchLists {
        data: vec![path("/a"), path("/b"), path("/gone")],
        exists: vec![path("/c")],
        children: vec![path("/")],
        ..WatchLists::default()
    };
    let mut notified = Vec::new();
    watches
        .rearm(reader, &store, since, &lists, |notice| {
            notified.push(notice.path.to_string())
        })
        .unwrap();
    assert_eq!(notified, ["/a"]);
}

#[test]
fn policies_filter_caught_up_watches() {
    let before = secured();
    let mut now = secured();
    set(&mut now, "/a");
    set(&mut now, "/b");
    let catch_up = |now: &Store| {
        let mut watches = Watches::new(WatchLimits::default(), 1);
        let reader = watches.connect(by(READER));
        for at in ["/a", "/b"] {
            watches.arm(reader, WatchKind::Data, &path(at)).unwrap();
        }
        let mut notified = Vec::new();
        watches.catch_up(&before, now, |_, notice| notified.push(notice.path.to_string()));
        notified
    };
    assert_eq!(catch_up(&now), ["/a"]);
    // Earlier rights do not count, also for deleted znodes.
    apply(
        &mut now,
        by(ADMIN),
        Command::Write(Op::Delete {
            path: path("/a"),
            version: -1,
        }),
    );
    assert_eq!(catch_up(&now), ["/a"]);
    apply(
        &mut now,
        by(ADMIN),
        Command::Access(AccessCommand::RevokeToken(READER)),
    );
    assert_eq!(catch_up(&now), [""; 0]);
}
