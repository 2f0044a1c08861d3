//! Notices reach those who wait for them, and nobody waits for what cannot come.

use futures_util::FutureExt;
use znode_store::{
    Acl, AclEntry, Command, EntryContext, Grant, LockMode, Password, Perms, Request, Visibility, ZnodeEvent,
    ZnodeEventKind,
};
use znode_watch::WatchLimits;

use super::session_events::EventPosition;
use super::*;

fn path(text: &str) -> ZPath {
    ZPath::parse(text).unwrap()
}

fn hub_with(per_node: u32, backlog: usize) -> Arc<Hub> {
    let limits = WatchLimits {
        per_watcher: 3,
        per_node,
    };
    let events = SessionEventsConfig::default();
    Arc::new(Hub::new(&WatchConfig { limits, backlog }, &events, 1))
}

fn hub() -> Arc<Hub> {
    hub_with(100, 100)
}

fn change(kind: ZnodeEventKind, at: &str) -> Event {
    let (path, acl) = (path(at), Acl::open());
    Event::Znode(ZnodeEvent { kind, path, acl })
}

fn set(hub: &Hub, at: &str, zxid: u64) {
    hub.dispatch(
        Zxid(zxid),
        &[change(ZnodeEventKind::DataChanged, at)],
        Visibility::open(),
    );
}

fn watch(hub: &Arc<Hub>, at: &str, kind: WatchKind) -> Watcher {
    hub.watch(&path(at), kind, Identities::none()).unwrap()
}

async fn told(watcher: Watcher) -> Option<String> {
    watcher.fired().await.map(|notice| notice.to_string())
}

fn waiting(connection: &HubConnection) -> Vec<String> {
    let notices = std::iter::from_fn(|| connection.backlog.try_next().unwrap());
    notices.map(|notice| notice.to_string()).collect()
}

#[tokio::test]
async fn a_watch_fires_once_and_only_for_its_path() {
    let hub = hub();
    let watcher = watch(&hub, "/a", WatchKind::Data);
    let others = [
        change(ZnodeEventKind::DataChanged, "/b"),
        change(ZnodeEventKind::ChildrenChanged, "/a"),
    ];
    hub.dispatch(Zxid(1), &others, Visibility::open());
    set(&hub, "/a", 2);
    set(&hub, "/a", 3);
    assert_eq!(told(watcher).await.unwrap(), "data of /a changed at 2");
}

#[tokio::test]
async fn a_persistent_watch_for_one_notice_has_ended_with_it() {
    let hub = hub();
    let watcher = watch(&hub, "/a", WatchKind::PersistentRecursive);
    hub.dispatch(
        Zxid(1),
        &[change(ZnodeEventKind::Created, "/ab")],
        Visibility::open(),
    );
    hub.dispatch(
        Zxid(2),
        &[change(ZnodeEventKind::Created, "/a/b/c")],
        Visibility::open(),
    );
    hub.dispatch(
        Zxid(3),
        &[change(ZnodeEventKind::Created, "/a/d")],
        Visibility::open(),
    );
    assert_eq!(hub.watch_counts(), WatchCounts::default());
    assert_eq!(told(watcher).await.unwrap(), "created /a/b/c at 2");
}

#[tokio::test]
async fn who_may_not_read_is_not_told() {
    let hub = hub();
    let watcher = watch(&hub, "/a", WatchKind::Persistent);
    let secret = Event::Znode(ZnodeEvent {
        kind: ZnodeEventKind::DataChanged,
        path: path("/a"),
        acl: Acl::new(vec![AclEntry::world(Perms::WRITE)]),
    });
    hub.dispatch(Zxid(1), &[secret], Visibility::open());
    set(&hub, "/a", 2);
    assert_eq!(told(watcher).await.unwrap(), "data of /a changed at 2");
}

#[tokio::test]
async fn a_dropped_waiter_leaves_no_trace() {
    let hub = hub();
    let lock = LockName::parse("l").unwrap();
    drop(watch(&hub, "/a", WatchKind::Data));
    drop(hub.wait_for_grant(&lock, &"h".to_owned()));
    let connection = hub.connect(Identities::none());
    connection.arm(WatchKind::Data, &path("/a")).unwrap();
    drop(connection);
    let tables = hub.tables.lock();
    assert_eq!(tables.watches.counts(), WatchCounts::default());
    assert!(tables.outlets.is_empty() && tables.grants.is_empty());
}

#[tokio::test]
async fn too_many_watches_are_refused_and_leave_no_trace() {
    let hub = hub_with(1, 100);
    let watcher = watch(&hub, "/a", WatchKind::Data);
    let refused = hub.watch(&path("/a"), WatchKind::Data, Identities::none());
    assert_eq!(refused.err(), Some(TooManyWatches::OfNode { limit: 1 }));
    assert_eq!(hub.watch_counts().watchers, 1);
    drop(watcher);
    watch(&hub, "/a", WatchKind::Data);
}

#[test]
fn a_connection_is_told_in_order() {
    let hub = hub();
    let connection = hub.connect(Identities::none());
    connection.arm(WatchKind::Persistent, &path("/a")).unwrap();
    connection.arm(WatchKind::Data, &path("/a/b")).unwrap();
    let creation = [
        change(ZnodeEventKind::Created, "/a/b"),
        change(ZnodeEventKind::ChildrenChanged, "/a"),
    ];
    hub.dispatch(Zxid(1), &creation, Visibility::open());
    set(&hub, "/a/b", 2);
    set(&hub, "/a", 3);
    let expected = [
        "created /a/b at 1",
        "children of /a changed at 1",
        "data of /a changed at 3",
    ];
    assert_eq!(waiting(&connection), expected);
    assert!(connection.is_armed(&path("/a"), WatcherType::Any));
    connection.remove(&path("/a"), WatcherType::Persistent).unwrap();
    set(&hub, "/a", 4);
    assert!(waiting(&connection).is_empty());
}

#[tokio::test]
async fn a_connection_that_waits_is_woken() {
    let hub = hub();
    let connection = hub.connect(Identities::none());
    connection.arm(WatchKind::Data, &path("/a")).unwrap();
    let (next, ()) = tokio::join!(connection.backlog.next(), async { set(&hub, "/a", 1) });
    assert_eq!(next.unwrap().zxid, Zxid(1));
    let (next, ()) = tokio::join!(connection.backlog.next(), async { hub.stop() });
    assert_eq!(next, Err(WatchesLost::NodeStops));
}

#[test]
fn a_client_that_does_not_read_loses_its_watches_and_no_notice_in_silence() {
    let hub = hub_with(100, 2);
    let (slow, quick) = (hub.connect(Identities::none()), hub.connect(Identities::none()));
    for connection in [&slow, &quick] {
        connection.arm(WatchKind::Persistent, &path("/a")).unwrap();
    }
    set(&hub, "/a", 1);
    set(&hub, "/a", 2);
    assert_eq!(waiting(&quick).len(), 2);
    set(&hub, "/a", 3);
    set(&hub, "/a", 4);
    assert_eq!(waiting(&quick).len(), 2);
    assert_eq!(slow.backlog.try_next(), Err(WatchesLost::TooSlow));
    assert_eq!(hub.watch_counts().watches, 1, "what is lost takes no room");
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
fn what_a_client_asks_for_when_it_comes_back_is_not_too_much_for_it() {
    let hub = hub_with(100, 1);
    let connection = hub.connect(Identities::none());
    let lists = WatchLists {
        exists: vec![path("/"), path("/zookeeper"), path("/zookeeper/quota")],
        ..WatchLists::default()
    };
    connection.rearm(&Store::new(), Zxid(0), &lists).unwrap();
    assert_eq!(waiting(&connection).len(), 3);
}

#[test]
fn a_client_that_is_not_given_back_all_its_watches_loses_them() {
    let hub = hub();
    let connection = hub.connect(Identities::none());
    let lists = WatchLists {
        persistent: ["/a", "/b", "/c", "/d"].map(path).into(),
        ..WatchLists::default()
    };
    let lost = WatchesLost::NotRearmed(TooManyWatches::OfWatcher { limit: 3 });
    assert_eq!(connection.rearm(&Store::new(), Zxid(0), &lists), Err(lost));
    assert_eq!(connection.backlog.try_next(), Err(lost));
    assert_eq!(hub.watch_counts(), WatchCounts::default());
}

#[tokio::test]
async fn nobody_waits_for_a_node_that_stops_or_has_stopped() {
    let hub = hub();
    let lock = LockName::parse("l").unwrap();
    let before = (
        hub.wait_for_grant(&lock, &"h".to_owned()),
        watch(&hub, "/a", WatchKind::Data),
        hub.connect(Identities::none()),
    );
    hub.stop();
    let after = (
        hub.wait_for_grant(&lock, &"h".to_owned()),
        watch(&hub, "/a", WatchKind::Data),
        hub.connect(Identities::none()),
    );
    for (mut wait, watcher, connection) in [before, after] {
        assert_eq!(wait.verdict().await, Verdict::Lost);
        assert_eq!(told(watcher).await, None);
        assert_eq!(connection.backlog.next().await, Err(WatchesLost::NodeStops));
    }
    assert_eq!(hub.watch_counts(), WatchCounts::default());
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

fn of_session(hub: &Arc<Hub>, store: &Store, since: u64) -> Result<HubConnection, WatchesLost> {
    hub.connect_session(store, SESSION, Zxid(since), Identities::none())
}

#[test]
fn a_connection_ends_with_its_session_after_what_it_was_told() {
    let hub = hub();
    let mut store = store_with_session();
    let connection = of_session(&hub, &store, 1).unwrap();
    connection.arm(WatchKind::Persistent, &path("/a")).unwrap();
    set(&hub, "/a", 2);
    let events = apply(&mut store, None, Command::CloseSession { session: SESSION });
    hub.dispatch(Zxid(3), &events, Visibility::open());
    set(&hub, "/a", 4);
    assert_eq!(
        connection.backlog.try_next().unwrap().unwrap().to_string(),
        "data of /a changed at 2"
    );
    assert_eq!(connection.backlog.try_next(), Err(WatchesLost::SessionEnded));
    assert!(connection.arm(WatchKind::Data, &path("/b")).is_err());
    assert_eq!(hub.watch_counts().watches, 0);
    assert_eq!(of_session(&hub, &store, 1).err(), Some(WatchesLost::SessionEnded));
}

#[test]
fn a_connection_ends_when_its_session_moves() {
    let hub = hub();
    let mut store = store_with_session();
    let first = of_session(&hub, &store, 1).unwrap();
    let events = reconnect(&mut store);
    hub.dispatch(Zxid(2), &events, Visibility::open());
    assert_eq!(first.backlog.try_next(), Err(WatchesLost::SessionMoved));
    assert_eq!(of_session(&hub, &store, 1).err(), Some(WatchesLost::SessionMoved));
    // Its own coming does not end the second.
    let second = of_session(&hub, &store, 2).unwrap();
    hub.dispatch(Zxid(2), &events, Visibility::open());
    assert_eq!(second.backlog.try_next(), Ok(None));
    // That the first one is dropped late takes nothing from the second.
    drop(first);
    let events = apply(&mut store, None, Command::CloseSession { session: SESSION });
    hub.dispatch(Zxid(3), &events, Visibility::open());
    assert_eq!(second.backlog.try_next(), Err(WatchesLost::SessionEnded));
}

#[test]
fn connections_end_when_the_state_that_takes_the_place_of_theirs_knows_better() {
    let hub = hub();
    let mut store = store_with_session();
    let connection = of_session(&hub, &store, 1).unwrap();
    hub.state_replaced(&store_with_session(), &store);
    assert_eq!(connection.backlog.try_next(), Ok(None));
    reconnect(&mut store);
    hub.state_replaced(&store_with_session(), &store);
    assert_eq!(connection.backlog.try_next(), Err(WatchesLost::SessionMoved));
}

#[test]
fn what_is_watched_is_told_with_its_session() {
    let hub = hub();
    let one_notice = watch(&hub, "/a", WatchKind::Data);
    let silent = hub.connect(Identities::none());
    let connection = hub.connect(Identities::none());
    for (kind, at) in [(WatchKind::Children, "/a"), (WatchKind::Persistent, "/b")] {
        connection.arm(kind, &path(at)).unwrap();
    }
    let session = SessionId(7);
    let watcher = connection.registration.watcher;
    hub.tables.lock().connections.add(session, Zxid(1), watcher);
    let mut armed = hub.armed();
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
    assert_eq!(hub.watching(), 2);
    drop((one_notice, silent, connection));
    assert_eq!((hub.armed(), hub.watching()), (vec![], 0));
}

#[tokio::test]
async fn a_grant_is_not_the_end_of_a_contender() {
    let hub = hub();
    let (lock, holder) = (LockName::parse("job").unwrap(), "holder".to_owned());
    let mut granted = hub.wait_for_grant(&lock, &holder);
    let mut ended = hub.wait_for_end(&lock, &holder);
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
    hub.dispatch(Zxid(1), &events, Visibility::open());
    assert_eq!(granted.verdict().await, Verdict::Granted(grant));
    assert!(ended.verdict().now_or_never().is_none(), "it holds");
    let how = ContenderEnd::Released;
    let end = Event::ContenderEnded {
        session,
        lock,
        holder,
        how: how.clone(),
    };
    hub.dispatch(Zxid(2), &[end], Visibility::open());
    assert_eq!(ended.verdict().await, Verdict::Ended(how));
    assert!(!hub.is_awaited());
}

#[tokio::test]
async fn whether_somebody_waits_is_known() {
    let hub = hub();
    assert!(!hub.is_awaited());
    let watcher = watch(&hub, "/a", WatchKind::Data);
    assert!(hub.is_awaited(), "for a change");
    drop(watcher);
    assert!(!hub.is_awaited());
    let connection = hub.connect(Identities::none());
    assert!(hub.is_awaited(), "by a client that may look");
    drop(connection);
    assert!(!hub.is_awaited());
    let lock = LockName::parse("job").unwrap();
    let wait = hub.wait_for_grant(&lock, &"holder".to_owned());
    assert!(hub.is_awaited(), "for a lock");
    drop(wait);
    assert!(!hub.is_awaited());
    let stream = hub.sessions.follow(SessionId(1), EventPosition::all_of(Zxid(1)));
    assert!(hub.is_awaited(), "for what happens to a session");
    drop(stream);
    assert!(!hub.is_awaited());
}
