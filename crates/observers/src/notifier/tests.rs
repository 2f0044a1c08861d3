//! Notices reach their watchers, and no watcher waits for a notice that cannot come.

use futures_util::FutureExt;
use znode_store::{
    Acl, AclEntry, Command, EntryContext, Grant, LockMode, Password, Perms, Request, Visibility, ZnodeEvent,
    ZnodeEventKind,
};
use znode_watch::WatchLimits;

use super::*;

fn path(text: &str) -> ZPath {
    ZPath::parse(text).unwrap()
}

fn notifier_with(per_node: u32, backlog: usize) -> Arc<Notifier> {
    let limits = WatchLimits {
        per_watcher: 3,
        per_node,
    };
    Arc::new(Notifier::new(&WatchConfig { limits, backlog }, 1))
}

fn notifier() -> Arc<Notifier> {
    notifier_with(100, 100)
}

fn change(kind: ZnodeEventKind, at: &str) -> Event {
    let (path, acl) = (path(at), Acl::open());
    Event::Znode(ZnodeEvent { kind, path, acl })
}

fn set(notifier: &Notifier, at: &str, zxid: u64) {
    notifier.dispatch(
        Zxid(zxid),
        &[change(ZnodeEventKind::DataChanged, at)],
        Visibility::open(),
    );
}

fn watch(notifier: &Arc<Notifier>, at: &str, kind: WatchKind) -> Watcher {
    notifier.watch(&path(at), kind, Identities::none()).unwrap()
}

async fn told(watcher: Watcher) -> Option<String> {
    watcher.fired().await.map(|notice| notice.to_string())
}

fn waiting(connection: &NotifierConnection) -> Vec<String> {
    let notices = std::iter::from_fn(|| connection.queue.try_next().unwrap());
    notices.map(|notice| notice.to_string()).collect()
}

#[tokio::test]
async fn a_watch_fires_once_and_only_for_its_path() {
    let notifier = notifier();
    let watcher = watch(&notifier, "/a", WatchKind::Data);
    let others = [
        change(ZnodeEventKind::DataChanged, "/b"),
        change(ZnodeEventKind::ChildrenChanged, "/a"),
    ];
    notifier.dispatch(Zxid(1), &others, Visibility::open());
    set(&notifier, "/a", 2);
    set(&notifier, "/a", 3);
    assert_eq!(told(watcher).await.unwrap(), "data of /a changed at 2");
}

#[tokio::test]
async fn a_persistent_watch_for_one_notice_has_ended_with_it() {
    let notifier = notifier();
    let watcher = watch(&notifier, "/a", WatchKind::PersistentRecursive);
    notifier.dispatch(
        Zxid(1),
        &[change(ZnodeEventKind::Created, "/ab")],
        Visibility::open(),
    );
    notifier.dispatch(
        Zxid(2),
        &[change(ZnodeEventKind::Created, "/a/b/c")],
        Visibility::open(),
    );
    notifier.dispatch(
        Zxid(3),
        &[change(ZnodeEventKind::Created, "/a/d")],
        Visibility::open(),
    );
    assert_eq!(notifier.watch_counts(), WatchCounts::default());
    assert_eq!(told(watcher).await.unwrap(), "created /a/b/c at 2");
}

#[tokio::test]
async fn watcher_without_the_right_to_read_gets_no_notice() {
    let notifier = notifier();
    let watcher = watch(&notifier, "/a", WatchKind::Persistent);
    let secret = Event::Znode(ZnodeEvent {
        kind: ZnodeEventKind::DataChanged,
        path: path("/a"),
        acl: Acl::new(vec![AclEntry::world(Perms::WRITE)]),
    });
    notifier.dispatch(Zxid(1), &[secret], Visibility::open());
    set(&notifier, "/a", 2);
    assert_eq!(told(watcher).await.unwrap(), "data of /a changed at 2");
}

#[tokio::test]
async fn a_dropped_waiter_leaves_no_trace() {
    let notifier = notifier();
    let lock = LockName::parse("l").unwrap();
    drop(watch(&notifier, "/a", WatchKind::Data));
    drop(notifier.wait_for_grant(&lock, &"h".to_owned()));
    let connection = notifier.connect(Identities::none());
    connection.arm(WatchKind::Data, &path("/a")).unwrap();
    drop(connection);
    let tables = notifier.tables.lock();
    assert_eq!(tables.watches.counts(), WatchCounts::default());
    assert!(tables.subscribers.is_empty() && tables.grants.is_empty());
}

#[tokio::test]
async fn too_many_watches_are_refused_and_leave_no_trace() {
    let notifier = notifier_with(1, 100);
    let watcher = watch(&notifier, "/a", WatchKind::Data);
    let refused = notifier.watch(&path("/a"), WatchKind::Data, Identities::none());
    assert_eq!(refused.err(), Some(TooManyWatches::OfNode { limit: 1 }));
    assert_eq!(notifier.watch_counts().watchers, 1);
    drop(watcher);
    watch(&notifier, "/a", WatchKind::Data);
}

#[test]
fn a_connection_gets_notices_in_order() {
    let notifier = notifier();
    let connection = notifier.connect(Identities::none());
    connection.arm(WatchKind::Persistent, &path("/a")).unwrap();
    connection.arm(WatchKind::Data, &path("/a/b")).unwrap();
    let creation = [
        change(ZnodeEventKind::Created, "/a/b"),
        change(ZnodeEventKind::ChildrenChanged, "/a"),
    ];
    notifier.dispatch(Zxid(1), &creation, Visibility::open());
    set(&notifier, "/a/b", 2);
    set(&notifier, "/a", 3);
    let expected = [
        "created /a/b at 1",
        "children of /a changed at 1",
        "data of /a changed at 3",
    ];
    assert_eq!(waiting(&connection), expected);
    assert!(connection.is_armed(&path("/a"), WatcherType::Any));
    connection.remove(&path("/a"), WatcherType::Persistent).unwrap();
    set(&notifier, "/a", 4);
    assert!(waiting(&connection).is_empty());
}

#[tokio::test]
async fn a_connection_that_waits_is_woken() {
    let notifier = notifier();
    let connection = notifier.connect(Identities::none());
    connection.arm(WatchKind::Data, &path("/a")).unwrap();
    let (next, ()) = tokio::join!(connection.queue.next(), async { set(&notifier, "/a", 1) });
    assert_eq!(next.unwrap().zxid, Zxid(1));
    let (next, ()) = tokio::join!(connection.queue.next(), async { notifier.stop() });
    assert_eq!(next, Err(WatchesLost::NodeStops));
}

#[test]
fn a_client_that_does_not_read_loses_its_watches_and_no_notice_in_silence() {
    let notifier = notifier_with(100, 2);
    let (slow, quick) = (
        notifier.connect(Identities::none()),
        notifier.connect(Identities::none()),
    );
    for connection in [&slow, &quick] {
        connection.arm(WatchKind::Persistent, &path("/a")).unwrap();
    }
    set(&notifier, "/a", 1);
    set(&notifier, "/a", 2);
    assert_eq!(waiting(&quick).len(), 2);
    set(&notifier, "/a", 3);
    set(&notifier, "/a", 4);
    assert_eq!(waiting(&quick).len(), 2);
    assert_eq!(slow.queue.try_next(), Err(WatchesLost::TooSlow));
    assert_eq!(notifier.watch_counts().watches, 1, "what is lost takes no room");
    // It is lost for good.
    let lost = WatchesLost::TooSlow;
    assert_eq!(slow.arm(WatchKind::Data, &path("/a")), Err(lost.into()));
    assert!(slow.remove(&path("/a"), WatcherType::Any).is_err());
    assert!(!slow.is_armed(&path("/a"), WatcherType::Any));
    slow.set_identities(Identities::none());
    assert_eq!(
        slow.rearm(&Store::new(), Zxid(0), &WatchLists::default()),
        Err(lost)
    );
}

#[test]
fn rearmed_watches_do_not_exceed_the_bound() {
    let notifier = notifier_with(100, 1);
    let connection = notifier.connect(Identities::none());
    let lists = WatchLists {
        exists: vec![path("/"), path("/zookeeper"), path("/zookeeper/quota")],
        ..WatchLists::default()
    };
    connection.rearm(&Store::new(), Zxid(0), &lists).unwrap();
    assert_eq!(waiting(&connection).len(), 3);
}

#[test]
fn a_client_that_cannot_rearm_all_its_watches_loses_them() {
    let notifier = notifier();
    let connection = notifier.connect(Identities::none());
    let lists = WatchLists {
        persistent: ["/a", "/b", "/c", "/d"].map(path).into(),
        ..WatchLists::default()
    };
    let lost = WatchesLost::NotRearmed(TooManyWatches::OfWatcher { limit: 3 });
    assert_eq!(connection.rearm(&Store::new(), Zxid(0), &lists), Err(lost));
    assert_eq!(connection.queue.try_next(), Err(lost));
    assert_eq!(notifier.watch_counts(), WatchCounts::default());
}

#[tokio::test]
async fn waits_end_when_the_node_stops_or_has_stopped() {
    let notifier = notifier();
    let lock = LockName::parse("l").unwrap();
    let before = (
        notifier.wait_for_grant(&lock, &"h".to_owned()),
        watch(&notifier, "/a", WatchKind::Data),
        notifier.connect(Identities::none()),
    );
    notifier.stop();
    let after = (
        notifier.wait_for_grant(&lock, &"h".to_owned()),
        watch(&notifier, "/a", WatchKind::Data),
        notifier.connect(Identities::none()),
    );
    for (mut wait, watcher, connection) in [before, after] {
        assert_eq!(wait.outcome().await, WaitOutcome::Lost);
        assert_eq!(told(watcher).await, None);
        assert_eq!(connection.queue.next().await, Err(WatchesLost::NodeStops));
    }
    assert_eq!(notifier.watch_counts(), WatchCounts::default());
}

const SESSION: SessionId = SessionId(7);

/// A state in which the session is open.
fn store_with_session() -> Store {
    let mut store = Store::new();
    let command = Command::OpenSession {
        session: SESSION,
        password: Password([1; 16]),
        timeout_ms: 1_000,
        name: "".into(),
        address: "".into(),
    };
    apply(&mut store, None, command);
    store
}

fn apply(store: &mut Store, session: Option<SessionId>, command: Command) -> Vec<Event> {
    let request = Request {
        session,
        ..Request::anonymous(command)
    };
    let mut events = Vec::new();
    let entry = EntryContext { time_ms: 1, term: 1 };
    store.apply(&entry, request, &mut events).outcome.unwrap();
    events
}

fn reconnect(store: &mut Store) -> Vec<Event> {
    let command = Command::Reconnect {
        session: SESSION,
        password: Password([1; 16]),
    };
    apply(store, Some(SESSION), command)
}

fn of_session(
    notifier: &Arc<Notifier>,
    store: &Store,
    since: u64,
) -> Result<NotifierConnection, WatchesLost> {
    notifier.connect_session(store, SESSION, Zxid(since), Identities::none())
}

#[test]
fn a_connection_ends_with_its_session_after_its_notices() {
    let notifier = notifier();
    let mut store = store_with_session();
    let connection = of_session(&notifier, &store, 1).unwrap();
    connection.arm(WatchKind::Persistent, &path("/a")).unwrap();
    set(&notifier, "/a", 2);
    let events = apply(&mut store, None, Command::CloseSession { session: SESSION });
    notifier.dispatch(Zxid(3), &events, Visibility::open());
    set(&notifier, "/a", 4);
    assert_eq!(
        connection.queue.try_next().unwrap().unwrap().to_string(),
        "data of /a changed at 2"
    );
    assert_eq!(connection.queue.try_next(), Err(WatchesLost::SessionEnded));
    assert!(connection.arm(WatchKind::Data, &path("/b")).is_err());
    assert_eq!(notifier.watch_counts().watches, 0);
    assert_eq!(
        of_session(&notifier, &store, 1).err(),
        Some(WatchesLost::SessionEnded)
    );
}

#[test]
fn a_connection_ends_when_its_session_moves() {
    let notifier = notifier();
    let mut store = store_with_session();
    let first = of_session(&notifier, &store, 1).unwrap();
    let events = reconnect(&mut store);
    notifier.dispatch(Zxid(2), &events, Visibility::open());
    assert_eq!(first.queue.try_next(), Err(WatchesLost::SessionMoved));
    assert_eq!(
        of_session(&notifier, &store, 1).err(),
        Some(WatchesLost::SessionMoved)
    );
    // The second connection does not end itself.
    let second = of_session(&notifier, &store, 2).unwrap();
    notifier.dispatch(Zxid(2), &events, Visibility::open());
    assert_eq!(second.queue.try_next(), Ok(None));
    // The late drop of the first one takes nothing from the second.
    drop(first);
    let events = apply(&mut store, None, Command::CloseSession { session: SESSION });
    notifier.dispatch(Zxid(3), &events, Visibility::open());
    assert_eq!(second.queue.try_next(), Err(WatchesLost::SessionEnded));
}

#[test]
fn connections_end_when_a_new_state_has_no_such_session() {
    let notifier = notifier();
    let mut store = store_with_session();
    let connection = of_session(&notifier, &store, 1).unwrap();
    notifier.state_replaced(&store_with_session(), &store);
    assert_eq!(connection.queue.try_next(), Ok(None));
    reconnect(&mut store);
    notifier.state_replaced(&store_with_session(), &store);
    assert_eq!(connection.queue.try_next(), Err(WatchesLost::SessionMoved));
}

#[test]
fn watches_are_listed_with_their_session() {
    let notifier = notifier();
    let one_notice = watch(&notifier, "/a", WatchKind::Data);
    let silent = notifier.connect(Identities::none());
    let connection = notifier.connect(Identities::none());
    for (kind, at) in [(WatchKind::Children, "/a"), (WatchKind::Persistent, "/b")] {
        connection.arm(kind, &path(at)).unwrap();
    }
    let session = SessionId(7);
    let watcher = connection.registration.watcher;
    notifier.tables.lock().connections.add(session, Zxid(1), watcher);
    let mut armed = notifier.armed();
    armed.sort_by_key(|armed| armed.session);
    let expected = [
        ArmedWatches {
            session: None,
            watches: vec![(path("/a"), WatchKind::Data)],
        },
        ArmedWatches {
            session: Some(session),
            watches: vec![
                (path("/a"), WatchKind::Children),
                (path("/b"), WatchKind::Persistent),
            ],
        },
    ];
    assert_eq!(armed, expected);
    assert_eq!(notifier.watching(), 2);
    drop((one_notice, silent, connection));
    assert_eq!((notifier.armed(), notifier.watching()), (vec![], 0));
}

#[tokio::test]
async fn a_grant_is_not_the_end_of_a_contender() {
    let notifier = notifier();
    let (lock, holder) = (LockName::parse("job").unwrap(), "holder".to_owned());
    let mut granted = notifier.wait_for_grant(&lock, &holder);
    let mut ended = notifier.wait_for_end(&lock, &holder);
    let grant = Grant {
        lock: lock.clone(),
        mode: LockMode::Exclusive,
        permits: 1,
        holder: holder.clone(),
        fencing_token: Zxid(1),
        holds: 1,
    };
    let session = SessionId(1);
    let events = [
        Event::Granted {
            session,
            grant: grant.clone(),
        },
        Event::UpgradeWithdrawn {
            session,
            lock: lock.clone(),
            holder: holder.clone(),
        },
    ];
    notifier.dispatch(Zxid(1), &events, Visibility::open());
    assert_eq!(granted.outcome().await, WaitOutcome::Granted(grant));
    assert!(ended.outcome().now_or_never().is_none(), "it holds");
    let how = ContenderEnd::Released;
    let end = Event::ContenderEnded {
        session,
        lock,
        holder,
        how: how.clone(),
    };
    notifier.dispatch(Zxid(2), &[end], Visibility::open());
    assert_eq!(ended.outcome().await, WaitOutcome::Ended(how));
    assert!(!notifier.is_awaited());
}

#[tokio::test]
async fn is_awaited_while_there_is_a_watcher_or_a_wait() {
    let notifier = notifier();
    assert!(!notifier.is_awaited());
    let watcher = watch(&notifier, "/a", WatchKind::Data);
    assert!(notifier.is_awaited(), "for a change");
    drop(watcher);
    assert!(!notifier.is_awaited());
    let connection = notifier.connect(Identities::none());
    assert!(notifier.is_awaited(), "by a client that may look");
    drop(connection);
    assert!(!notifier.is_awaited());
    let lock = LockName::parse("job").unwrap();
    let wait = notifier.wait_for_grant(&lock, &"holder".to_owned());
    assert!(notifier.is_awaited(), "for a lock");
    drop(wait);
    assert!(!notifier.is_awaited());
}
