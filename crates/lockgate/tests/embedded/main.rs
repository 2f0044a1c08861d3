//! Embedding library: a node inside this program, and locks of the program without a socket.

#![allow(clippy::unwrap_used, reason = "a failed test may panic, also in its helpers")]

use std::thread;
use std::time::{Duration, Instant};

use lockgate::Lockgate;
use lockgate::lock_client::{
    AcquireOptions, Code, CreateMode, Error, LockClient, LockGuard, LockSession, LockSet, Loss,
    NamespaceQuotas, Transaction, Wait, blocking,
};
use lockgate::znode_store::LockName;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

/// Minimum timeout that a node allows.
const TTL: Duration = Duration::from_secs(2);

/// Time limit of a condition.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until a condition holds.
async fn eventually(what: &str, is_so: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_so().await {
        assert!(Instant::now() < deadline, "not in {TIMEOUT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

struct Embedded {
    server: Lockgate,
    _dir: TempDir,
}

impl Embedded {
    async fn start() -> Self {
        let dir = TempDir::new().unwrap();
        let server = Lockgate::builder()
            .member(1, "127.0.0.1:0", "127.0.0.1:0")
            .data_dir(dir.path())
            .without_http()
            .start()
            .await
            .unwrap();
        server.ready(TIMEOUT).await.unwrap();
        Self { server, _dir: dir }
    }

    async fn session(&self, name: &str) -> LockSession {
        open(self.server.client(), name).await
    }

    /// Returns the numbers of holders and of waiters of a lock.
    fn holders_and_waiters(&self, lock: &str) -> (usize, usize) {
        let lock = LockName::parse(lock).unwrap();
        let view = self.server.node().read(|store| store.lock(&lock));
        view.map_or((0, 0), |view| (view.holders.len(), view.queue.len()))
    }
}

async fn open(client: &LockClient, name: &str) -> LockSession {
    client.session().name(name).ttl(TTL).open().await.unwrap()
}

/// Creates a runtime on the current thread.
fn small_runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Runs a future on a runtime that has ended when this returns.
async fn on_a_short_lived_runtime<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    let done = tokio::task::spawn_blocking(move || small_runtime().block_on(future));
    done.await.unwrap()
}

#[track_caller]
fn assert_busy(outcome: Result<LockGuard, Error>) {
    match outcome {
        Err(error) if error.is(Code::LockBusy) && error.is_retryable() => {}
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
        .acquire("door", exclusive().try_only().note("bert is next"))
        .await
        .unwrap();

    // A dropped guard releases its lock, only later.
    drop(next);
    let waited = anna
        .acquire("door", exclusive().wait_at_most(TTL * 10))
        .await
        .unwrap();
    assert!(!waited.is_lost());

    // Closing a session ends the holds of its guards, and their release returns the loss.
    anna.close().await.unwrap();
    assert_eq!(embedded.holders_and_waiters("door"), (0, 0));
    let reason = waited.check().unwrap_err();
    assert_eq!(waited.release().await, Err(reason));
    embedded.server.stop().await;
}

#[tokio::test]
async fn embedded_sessions_support_all_operations() {
    let embedded = Embedded::start().await;
    let anna = embedded.session("anna").await;
    // A clone is the same session.
    let too = anna.clone();
    let mut guard = too
        .acquire(
            "door",
            AcquireOptions::upgradeable().lock_delay(Duration::from_secs(1)),
        )
        .await
        .unwrap();
    let before = guard.check().unwrap();
    guard.upgrade(Wait::Try).await.unwrap();
    assert!(guard.fencing_token() > before);
    assert!(guard.verify().await.unwrap());
    let set = LockSet::new()
        .with("a", AcquireOptions::exclusive())
        .with("b", AcquireOptions::semaphore(2));
    let several = anna.acquire_all(set).await.unwrap();
    assert_eq!(several.guards().len(), 2);
    several.release().await.unwrap();

    // Another client requests the release of the lock, and then breaks it.
    let client = embedded.server.client();
    let asked = guard.release_requested();
    assert_eq!(
        client
            .request_release("door", None, "I am in a hurry")
            .await
            .unwrap(),
        1
    );
    assert_eq!(asked.await.reason, "I am in a hurry");
    guard.answer("one moment").await.unwrap();
    let lost = guard.lost();
    client.break_lock("door", guard.holder(), "stuck").await.unwrap();
    let loss = lost.await;
    assert!(
        matches!(&loss, Loss::Broken { reason, .. } if reason == "stuck"),
        "{loss:?}"
    );
    assert_eq!(guard.release().await, Err(Error::Lost(loss)));
    embedded.server.stop().await;
}

#[tokio::test]
async fn guarded_write_needs_the_lock() {
    let embedded = Embedded::start().await;
    let (anna, bert) = (embedded.session("anna").await, embedded.session("bert").await);
    let client = embedded.server.client();
    let set = |data: &str, version| Transaction::new().set("/report", data, Some(version));
    let stored = async || {
        let znode = client.znodes().get("/report").await.unwrap();
        (znode.text().unwrap().to_owned(), znode.stat.version)
    };
    let guard = anna.acquire("door", AcquireOptions::exclusive()).await.unwrap();
    let window = anna.acquire("window", AcquireOptions::shared()).await.unwrap();
    let create = Transaction::new().create("/report", "0", CreateMode::Persistent);
    let done = guard.write(create.set("/report", "1", Some(0))).await.unwrap();
    assert_eq!(done.len(), 2, "{done:?}");
    // Guarded by two locks, over either API of the tree.
    let both = set("2", 1).held(&guard).held(&window);
    client.znodes().commit(both).await.unwrap();
    assert_eq!(stored().await, ("2".to_owned(), 2));

    // The index of the failed operation is counted without the guards.
    let refused = guard
        .write(set("3", 2).set("/report", "4", Some(2)))
        .await
        .unwrap_err();
    let Error::Refused(refusal) = &refused else {
        panic!("{refused:?}");
    };
    assert_eq!(
        (&refusal.code, &refusal.facts["index"]),
        (&Code::BadVersion, &1.into())
    );
    // A guard is invalid in another session, and together with a guard of another session.
    let foreign = bert.acquire("gate", AcquireOptions::exclusive()).await.unwrap();
    let of_another = bert.znodes().commit(set("3", 2).held(&guard)).await;
    let of_two = client
        .znodes()
        .commit(set("3", 2).held(&guard).held(&foreign))
        .await;
    for refused in [of_another, of_two] {
        assert!(
            matches!(&refused, Err(error) if error.is(Code::NotHolder)),
            "{refused:?}"
        );
    }
    client.break_lock("door", guard.holder(), "stuck").await.unwrap();
    let late = guard.write(set("3", 2)).await;
    assert!(
        matches!(&late, Err(Error::Lost(Loss::Broken { reason, .. })) if reason == "stuck"),
        "{late:?}"
    );
    assert_eq!(stored().await, ("2".to_owned(), 2));
    anna.close().await.unwrap();
    let closed = window.write(Transaction::new()).await;
    assert_eq!(closed, Err(Error::Lost(Loss::Closed)));
    embedded.server.stop().await;
}

#[tokio::test]
async fn dropped_acquire_leaves_the_queue_and_a_timed_one_fails() {
    let embedded = Embedded::start().await;
    let (anna, bert) = (embedded.session("anna").await, embedded.session("bert").await);
    let guard = anna.acquire("door", AcquireOptions::exclusive()).await.unwrap();
    {
        let wait = bert.acquire("door", AcquireOptions::exclusive());
        tokio::pin!(wait);
        tokio::select! {
            granted = &mut wait => panic!("{granted:?}"),
            () = eventually("bert waits", async || embedded.holders_and_waiters("door") == (1, 1)) => {}
        }
    }
    eventually("bert has left", async || {
        embedded.holders_and_waiters("door") == (1, 0)
    })
    .await;
    let patience = AcquireOptions::exclusive().wait_at_most(Duration::from_millis(30));
    let late = bert.acquire("door", patience).await;
    assert!(
        matches!(&late, Err(error) if error.is(Code::LockTimeout)),
        "{late:?}"
    );
    assert_eq!(embedded.holders_and_waiters("door"), (1, 0));
    guard.release().await.unwrap();
    embedded.server.stop().await;
}

#[tokio::test]
async fn guard_keeps_its_session_open_and_the_last_one_closes_it() {
    let embedded = Embedded::start().await;
    let (anna, bert) = (embedded.session("anna").await, embedded.session("bert").await);
    let id = anna.id().to_owned();
    let left = anna.acquire("left", AcquireOptions::exclusive()).await.unwrap();
    drop(anna);
    let beyond_its_time = AcquireOptions::exclusive().wait_at_most(TTL * 3 / 2);
    assert!(bert.acquire("left", beyond_its_time).await.is_err());
    assert!(!left.is_lost());
    drop(left);
    let _granted = bert.acquire("left", AcquireOptions::exclusive()).await.unwrap();
    eventually("its session is closed", async || {
        let sessions = embedded.server.client().sessions().await.unwrap();
        sessions.iter().all(|session| session.session != id)
    })
    .await;
    embedded.server.stop().await;
}

/// The node's runtime has several threads because the test blocks one of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_outlives_the_runtime_that_opened_it() {
    let embedded = Embedded::start().await;
    let client = embedded.server.client().clone();
    let guard = on_a_short_lived_runtime(async move {
        let session = open(&client, "short-lived").await;
        session
            .acquire("door", AcquireOptions::exclusive())
            .await
            .unwrap()
    })
    .await;
    let bert = embedded.session("bert").await;
    let beyond_its_time = AcquireOptions::exclusive().wait_at_most(TTL * 3 / 2);
    let waited = bert.acquire("door", beyond_its_time).await;
    assert!(
        matches!(&waited, Err(error) if error.is(Code::LockTimeout)),
        "{waited:?}"
    );
    guard.check().unwrap();

    // The guard is also notified of its end.
    let client = embedded.server.client();
    client.break_lock("door", guard.holder(), "stuck").await.unwrap();
    let loss = tokio::time::timeout(TIMEOUT, guard.lost()).await.unwrap();
    assert!(matches!(loss, Loss::Broken { .. }), "{loss:?}");
    embedded.server.stop().await;
}

#[tokio::test]
async fn guard_reports_its_loss_before_its_blocked_runtime_resumes() {
    let embedded = Embedded::start().await;
    let anna = embedded.session("anna").await;
    let guard = anna.acquire("door", AcquireOptions::exclusive()).await.unwrap();
    guard.check().unwrap();
    // This blocks the only thread of the node's runtime, so no heartbeat is confirmed.
    thread::sleep(TTL);
    assert_eq!(guard.check(), Err(Error::Lost(Loss::NoHeartbeat)));
    assert!(guard.is_lost() && anna.is_lost());
    assert_eq!(guard.lost().await, Loss::NoHeartbeat);
    embedded.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guard_dropped_on_a_plain_thread_or_with_its_runtime_releases_its_lock() {
    let embedded = Embedded::start().await;
    let anna = embedded.session("anna").await;
    for dies_with_its_runtime in [false, true] {
        let guard = anna.acquire("door", AcquireOptions::exclusive()).await.unwrap();
        let dropped = thread::spawn(move || {
            if dies_with_its_runtime {
                let runtime = small_runtime();
                runtime.spawn(async move {
                    let _held = guard;
                    std::future::pending::<()>().await;
                });
                runtime.block_on(tokio::task::yield_now());
            }
        });
        dropped.join().unwrap();
        let soon = Instant::now();
        eventually("the lock is free", async || {
            embedded.holders_and_waiters("door") == (0, 0)
        })
        .await;
        assert!(
            !anna.is_lost(),
            "free after {:?} with its session",
            soon.elapsed()
        );
    }
    embedded.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquire_whose_runtime_ends_leaves_the_queue() {
    let embedded = Embedded::start().await;
    let (anna, bert) = (embedded.session("anna").await, embedded.session("bert").await);
    let guard = anna.acquire("door", AcquireOptions::exclusive()).await.unwrap();
    let waits = bert.clone();
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let thread = thread::spawn(move || {
        let runtime = small_runtime();
        runtime.spawn(async move { waits.acquire("door", AcquireOptions::exclusive()).await.map(drop) });
        runtime.block_on(stopped).unwrap();
    });
    eventually("bert waits", async || {
        embedded.holders_and_waiters("door") == (1, 1)
    })
    .await;
    stop.send(()).unwrap();
    thread.join().unwrap();
    eventually("bert has left", async || {
        embedded.holders_and_waiters("door") == (1, 0)
    })
    .await;
    guard.release().await.unwrap();
    eventually("the lock is free", async || {
        embedded.holders_and_waiters("door") == (0, 0)
    })
    .await;
    embedded.server.stop().await;
}

#[tokio::test]
async fn owner_that_would_wait_for_itself_is_rejected() {
    let embedded = Embedded::start().await;
    let anna = embedded.session("anna").await;
    let owned = || AcquireOptions::exclusive().owner("task");
    let guard = anna.acquire("door", owned()).await.unwrap();
    let refused = anna.acquire("door", owned()).await.unwrap_err();
    assert!(
        refused.is(Code::WouldDeadlock) && !refused.is_retryable(),
        "{refused:?}"
    );
    // Waits with a limit, another owner, and calls without an owner are no deadlock.
    let soon = Duration::from_millis(30);
    for waits in [
        owned().wait_at_most(soon),
        AcquireOptions::exclusive().owner("other").wait_at_most(soon),
        AcquireOptions::exclusive().wait_at_most(soon),
    ] {
        let late = anna.acquire("door", waits).await;
        assert!(
            matches!(&late, Err(error) if error.is(Code::LockTimeout)),
            "{late:?}"
        );
    }
    guard.release().await.unwrap();
    anna.acquire("door", owned())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    embedded.server.stop().await;
}

#[tokio::test]
async fn stop_closes_the_sessions_of_the_program() {
    let embedded = Embedded::start().await;
    let (anna, bert) = (embedded.session("anna").await, embedded.session("bert").await);
    let guard = anna.acquire("left", AcquireOptions::exclusive()).await.unwrap();
    let waits =
        tokio::spawn(async move { bert.acquire("left", AcquireOptions::exclusive()).await.map(drop) });
    eventually("bert waits", async || {
        embedded.holders_and_waiters("left") == (1, 1)
    })
    .await;
    embedded.server.stop().await;
    assert_eq!(guard.lost().await, Loss::Stopped);
    assert_eq!(guard.check(), Err(Error::Lost(Loss::Stopped)));
    assert_eq!(waits.await.unwrap(), Err(Error::Lost(Loss::Stopped)));
    // Both sessions were closed, and did not expire.
    assert_eq!(embedded.holders_and_waiters("left"), (0, 0));
    assert_eq!(guard.release().await, Err(Error::Lost(Loss::Stopped)));

    // The client makes no further attempts.
    let stopped = embedded.server.open_session("late").await.unwrap_err();
    assert!(
        stopped == Error::Stopped && !stopped.is_retryable(),
        "{stopped:?}"
    );
    let client = embedded.server.client();
    assert_eq!(client.znodes().get("/").await, Err(Error::Stopped));
    let late = embedded.server.ready(TIMEOUT).await.unwrap_err();
    assert!(late.to_string().contains("stopping"), "{late}");
}

/// A blocking program has a thread and no runtime.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocking_client_acquires_locks_from_a_thread() {
    let embedded = Embedded::start().await;
    let client = blocking::LockClient::from(embedded.server.client().clone());
    let worked = thread::spawn(move || {
        let session = client.session().name("thread").ttl(TTL).open()?;
        let guard = session.acquire("door", AcquireOptions::exclusive())?;
        // Longer than the session's timeout without heartbeats.
        thread::sleep(TTL * 3 / 2);
        guard.check()?;
        let changes = Transaction::new().create("/by-thread", "done", CreateMode::Persistent);
        guard.write(changes)?;
        guard.release()?;
        session.close()
    });
    let worked = tokio::task::spawn_blocking(|| worked.join().unwrap());
    worked.await.unwrap().unwrap();
    let written = embedded.server.client().znodes().get("/by-thread").await.unwrap();
    assert_eq!(written.text(), Some("done"));
    embedded.server.stop().await;
}

#[cfg(feature = "testing")]
#[tokio::test]
async fn test_server_ends_sessions_on_demand_and_leaves_no_directory() {
    let server = lockgate::testing::TestServer::start().await.unwrap();
    let directory = server.server().node().config().raft.data_dir.clone();
    let session = server.client().session().open().await.unwrap();
    let guard = session
        .acquire("door", AcquireOptions::exclusive())
        .await
        .unwrap();
    server.client().end_session(session.id()).await.unwrap();
    assert_eq!(guard.lost().await, Loss::Expired);
    assert_eq!(guard.release().await, Err(Error::Lost(Loss::Expired)));
    // A second call has no effect.
    server.client().end_session(session.id()).await.unwrap();
    assert!(directory.exists());
    server.stop().await;
    assert!(!directory.exists());
}

#[tokio::test]
async fn quota_of_a_namespace_is_an_error_of_the_library() {
    let embedded = Embedded::start().await;
    let client = embedded.server.client();
    let quotas = NamespaceQuotas {
        locks: Some(1),
        ..NamespaceQuotas::default()
    };
    let set = client.set_namespace_quotas("billing", &quotas).await.unwrap();
    assert_eq!((set.usage.locks, set.quotas), (0, quotas));
    let session = embedded.session("anna").await;
    let exclusive = AcquireOptions::exclusive;
    let held = session.acquire("billing/a", exclusive()).await.unwrap();
    let error = session.acquire("billing/b", exclusive()).await.unwrap_err();
    assert!(error.is(Code::NamespaceQuotaExceeded), "{error:?}");
    assert!(error.to_string().contains("locks is 1"), "{error}");
    session
        .acquire("other", exclusive())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert_eq!(client.namespaces().await.unwrap()[0].usage.locks, 1);
    held.release().await.unwrap();
    session
        .acquire("billing/b", exclusive())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    client.delete_namespace("billing").await.unwrap();
    let gone = client.namespace("billing").await.unwrap_err();
    assert!(gone.is(Code::NoNamespace), "{gone:?}");
}
