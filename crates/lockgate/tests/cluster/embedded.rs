//! The library: a node inside this very program, and locks without HTTP.

use std::time::Duration;

use local_cluster::layout::free_ports;
use lockgate::lock_api::locks::LockError;
use lockgate::znode_store::{Acl, CreateMode, CreatePath, LockName, Op, Refusal, Reply, ZPath};
use lockgate::{AcquireOptions, LocalGuard, LocalLockError, LocalSession, Lockgate};
use tempfile::TempDir;

use crate::harness::eventually;

const TTL: Duration = Duration::from_secs(2);

struct Embedded {
    server: Lockgate,
    _dir: TempDir,
}

impl Embedded {
    async fn start() -> Self {
        let dir = TempDir::new().unwrap();
        let ports = free_ports(2).unwrap();
        let server = Lockgate::builder()
            .member(
                1,
                format!("127.0.0.1:{}", ports[0]),
                format!("127.0.0.1:{}", ports[1]),
            )
            .data_dir(dir.path())
            .http_listen("127.0.0.1:0")
            .start()
            .await
            .unwrap();
        eventually("the node leads itself", async || server.node().status().ready).await;
        Self { server, _dir: dir }
    }

    async fn session(&self, name: &str) -> LocalSession {
        self.server.open_session_with(name, TTL).await.unwrap()
    }

    /// How many hold the lock, and how many wait for it.
    fn crowd(&self, lock: &str) -> (usize, usize) {
        let lock = LockName::parse(lock).unwrap();
        let view = self.server.node().read(|store| store.lock(&lock));
        view.map_or((0, 0), |view| (view.holders.len(), view.queue.len()))
    }
}

#[track_caller]
fn assert_busy(outcome: Result<LocalGuard, LocalLockError>) {
    match outcome {
        Err(LocalLockError::Refused(Refusal::LockBusy { .. })) => {}
        other => panic!("not busy: {other:?}"),
    }
}

#[tokio::test]
async fn guards_exclude_each_other_even_within_a_session_unless_they_are_reentrant() {
    let embedded = Embedded::start().await;
    let (anna, bert) = (embedded.session("anna").await, embedded.session("bert").await);
    let exclusive = AcquireOptions::exclusive;
    let guard = anna.acquire("door", exclusive()).await.unwrap();
    assert_busy(bert.acquire("door", exclusive().try_only()).await);
    assert_busy(anna.acquire("door", exclusive().try_only()).await);
    guard.release().await.unwrap();

    let outer = anna.acquire("door", exclusive().reentrant("task")).await.unwrap();
    let inner = anna.acquire("door", exclusive().reentrant("task")).await.unwrap();
    assert_eq!(outer.fencing_token(), inner.fencing_token());
    inner.release().await.unwrap();
    assert_busy(bert.acquire("door", exclusive().try_only()).await);
    outer.release().await.unwrap();
    let next = bert
        .acquire("door", exclusive().try_only().note("bert's turn"))
        .await
        .unwrap();

    // Dropping a guard gives its lock back, only later.
    drop(next);
    let waited = anna
        .acquire("door", exclusive().wait_at_most(TTL * 10))
        .await
        .unwrap();
    assert!(!waited.is_lost());

    // Closing a session ends its guards' locks, and their release says so.
    anna.close().await.unwrap();
    assert_eq!(embedded.crowd("door"), (0, 0));
    assert!(matches!(waited.release().await, Err(LocalLockError::SessionLost)));
    embedded.server.stop().await;
}

#[tokio::test]
async fn a_guarded_write_is_made_while_the_lock_is_held_or_not_at_all() {
    let embedded = Embedded::start().await;
    let (anna, bert) = (embedded.session("anna").await, embedded.session("bert").await);
    let report = || ZPath::parse("/report").unwrap();
    let create = Op::Create {
        path: CreatePath::parse("/report", false).unwrap(),
        data: "0".into(),
        acl: Acl::open(),
        mode: CreateMode::Ttl { ttl_ms: 600_000 },
        parents: false,
    };
    let set = |data: &str, version| Op::Set {
        path: report(),
        data: data.into(),
        version,
    };
    let stored = || {
        let (data, stat) = embedded.server.node().read(|store| store.get(&report())).unwrap();
        (data, stat.version, stat.ephemeral_owner.ttl_ms())
    };
    let guard = anna.acquire("door", AcquireOptions::exclusive()).await.unwrap();
    let window = anna.acquire("window", AcquireOptions::shared()).await.unwrap();
    let done = guard.write(vec![create, set("1", 0)]).await.unwrap();
    assert!(
        matches!(&done[..], [Reply::Created { .. }, Reply::Set(_)]),
        "{done:?}"
    );
    // By two locks, and with something of the session's own.
    let done = anna
        .transaction(vec![guard.held(), window.held(), set("2", 1)])
        .await
        .unwrap();
    assert!(
        matches!(&done[..], [Reply::Held, Reply::Held, Reply::Set(_)]),
        "{done:?}"
    );
    assert_eq!(stored(), ("2".into(), 2, Some(600_000)));

    // What is wrong is counted as the caller counts.
    match guard.write(vec![set("3", 2), set("4", 2)]).await {
        Err(LocalLockError::Refused(Refusal::Multi { index: 1, refusal })) => {
            assert!(matches!(*refusal, Refusal::BadVersion { .. }), "{refusal}");
        }
        other => panic!("{other:?}"),
    }
    // The token is no use to another session.
    match bert.transaction(vec![guard.held(), set("3", 2)]).await {
        Err(LocalLockError::Refused(Refusal::Multi { index: 0, refusal })) => {
            assert!(matches!(*refusal, Refusal::NotHeld { .. }), "{refusal}");
        }
        other => panic!("{other:?}"),
    }
    let (lock, holder) = (guard.lock().clone(), guard.holder().to_owned());
    let broken = embedded
        .server
        .locks()
        .break_holder(lock, holder, "operator", "stuck", None);
    broken.await.unwrap();
    match guard.write(vec![set("3", 2)]).await {
        Err(LocalLockError::Refused(Refusal::NotHeld { .. })) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(stored(), ("2".into(), 2, Some(600_000)));
    anna.close().await.unwrap();
    assert!(matches!(
        window.write(Vec::new()).await,
        Err(LocalLockError::SessionLost)
    ));
    embedded.server.stop().await;
}

#[tokio::test]
async fn a_dropped_acquire_leaves_the_queue_and_a_timed_one_says_so() {
    let embedded = Embedded::start().await;
    let (anna, bert) = (embedded.session("anna").await, embedded.session("bert").await);
    let guard = anna.acquire("door", AcquireOptions::exclusive()).await.unwrap();
    {
        let wait = bert.acquire("door", AcquireOptions::exclusive());
        tokio::pin!(wait);
        tokio::select! {
            granted = &mut wait => panic!("{granted:?}"),
            () = eventually("bert waits", async || embedded.crowd("door") == (1, 1)) => {}
        }
    }
    eventually("bert has left", async || embedded.crowd("door") == (1, 0)).await;
    let patience = AcquireOptions::exclusive().wait_at_most(Duration::from_millis(30));
    match bert.acquire("door", patience).await {
        Err(LocalLockError::Refused(Refusal::LockTimeout(_))) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(embedded.crowd("door"), (1, 0));
    guard.release().await.unwrap();
    embedded.server.stop().await;
}

#[tokio::test]
async fn a_guard_keeps_its_session_alive_and_the_last_one_closes_it() {
    let embedded = Embedded::start().await;
    let (anna, bert) = (embedded.session("anna").await, embedded.session("bert").await);
    let id = anna.id();
    let left = anna.acquire("left", AcquireOptions::exclusive()).await.unwrap();
    drop(anna);
    let beyond_its_time = AcquireOptions::exclusive().wait_at_most(TTL * 3 / 2);
    assert!(bert.acquire("left", beyond_its_time).await.is_err());
    assert!(!left.is_lost());
    drop(left);
    bert.acquire("left", AcquireOptions::exclusive()).await.unwrap();
    eventually("its session is closed", async || {
        embedded.server.node().read(|store| store.session(id).is_none())
    })
    .await;
    embedded.server.stop().await;
}

#[tokio::test]
async fn without_its_node_a_session_learns_that_it_is_lost() {
    let embedded = Embedded::start().await;
    let bert = embedded.session("bert").await;
    let guard = bert.acquire("left", AcquireOptions::exclusive()).await.unwrap();
    assert!(!guard.is_lost());
    embedded.server.stop().await;
    guard.lost().await;
    assert!(bert.is_lost());
    assert!(matches!(guard.release().await, Err(LocalLockError::SessionLost)));
    match bert.acquire("left", AcquireOptions::exclusive()).await {
        Err(LocalLockError::SessionLost | LocalLockError::Unavailable(_)) => {}
        other => panic!("{other:?}"),
    }
    // The service below says what it says to everybody.
    let lock = LockName::parse("left").unwrap();
    let outcome = embedded
        .server
        .locks()
        .release(bert.id(), lock, "nobody".to_owned(), None)
        .await;
    assert!(matches!(outcome, Err(LockError::Unavailable(_))), "{outcome:?}");
}
