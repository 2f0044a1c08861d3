//! Runtime of a client's tasks: they do not run on the caller's runtime, and survive its end.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on may say so shortly, also in its helpers"
)]

mod server;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use futures_util::FutureExt as _;
use lock_client::{AcquireOptions, Error, LockClient, LockGuard, Loss, blocking};
use server::{Answer, Server};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// Maximum time of every wait.
const TIMEOUT: Duration = Duration::from_secs(30);

const HEARTBEAT: &str = "POST /v1/sessions/s1/heartbeat";
const ACQUIRE: &str = "POST /v1/locks/a/acquire";
const RELEASE: &str = "POST /v1/locks/a/release";

const GRANT: &str =
    r#"{"lock": "a", "mode": "exclusive", "holder": "h", "fencing_token": 7, "holds": 1, "permits": 1}"#;
const HELD: &str = r#"{"held": [{"holder": "h"}]}"#;
const NOT_HOLDER: &str = r#"{"code": "not_holder", "detail": "the session does not hold it", "status": 409}"#;
const NO_ROUTE: &str = r#"{"code": "no_route", "detail": "no events here", "status": 404}"#;

/// Server that grants everything. Its sessions have a TTL of three seconds.
fn friendly(what: &str, _: usize) -> Answer {
    Some(match what {
        "POST /v1/sessions" => (201, r#"{"session": "s1", "ttl_ms": 3000}"#),
        "DELETE /v1/sessions/s1" => (204, ""),
        "GET /v1/sessions/s1/events" => (404, NO_ROUTE),
        "GET /v1/sessions/s1" => (200, HELD),
        HEARTBEAT => (200, r#"{"ttl_ms": 3000}"#),
        ACQUIRE => (200, GRANT),
        RELEASE => (200, r#"{"holds": 0}"#),
        other => panic!("{other} is not expected"),
    })
}

fn small_runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Returns a guard of a session that was opened on this runtime.
fn guard_on(runtime: &Runtime, client: &LockClient) -> LockGuard {
    runtime.block_on(async {
        let session = client.session().open().await.unwrap();
        session.acquire("a", AcquireOptions::exclusive()).await.unwrap()
    })
}

/// Waits until the server has received this number of requests.
async fn has_received(server: &Server, what: &str, times: usize) {
    let mut heard = server.heard.clone();
    let asked = heard.wait_for(|heard| heard.iter().filter(|heard| heard.what == what).count() >= times);
    let in_time = timeout(TIMEOUT, asked).await;
    in_time
        .unwrap_or_else(|_| panic!("{what}: not asked in time"))
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_is_renewed_after_its_runtime_has_gone_and_its_guard_releases_on_a_plain_thread() {
    let server = Server::start(friendly).await;
    let client = LockClient::new([&server.address]).unwrap();
    let plain = thread::spawn(move || guard_on(&small_runtime(), &client));
    let guard = tokio::task::spawn_blocking(|| plain.join().unwrap())
        .await
        .unwrap();
    // Two heartbeats, because the first of them may have been due on the old runtime.
    has_received(&server, HEARTBEAT, 2).await;
    guard.check().unwrap();
    thread::spawn(move || drop(guard));
    has_received(&server, RELEASE, 1).await;
    has_received(&server, "DELETE /v1/sessions/s1", 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_completes_at_the_deadline_without_the_task_that_renews() {
    let server = Server::start(friendly).await;
    let address = server.address.clone();
    let guard = tokio::task::spawn_blocking(move || {
        // Runtime of the program, which ends before the session.
        let runtime = small_runtime();
        let client = LockClient::builder([&address]).runtime(runtime.handle().clone());
        guard_on(&runtime, &client.build().unwrap())
    });
    let guard = guard.await.unwrap();
    let loss = timeout(TIMEOUT, guard.lost())
        .await
        .expect("it hears of its loss");
    assert_eq!(loss, Loss::NoHeartbeat);
    assert_eq!(guard.check(), Err(Error::Lost(Loss::NoHeartbeat)));
}

#[tokio::test]
async fn dropped_close_is_repeated_in_the_background() {
    const CLOSE: &str = "DELETE /v1/sessions/s1";
    let closes = AtomicUsize::new(0);
    let server = Server::start(move |what, count| match what {
        // The first one may be that of the dropped future.
        CLOSE if closes.fetch_add(1, Ordering::Relaxed) == 0 => None,
        _ => friendly(what, count),
    })
    .await;
    let client = LockClient::new([&server.address]).unwrap();
    let session = client.session().open().await.unwrap();
    // One poll, which sends the request, and no answer.
    assert!(session.close().now_or_never().is_none());
    has_received(&server, CLOSE, 2).await;
}

#[tokio::test]
async fn release_of_a_lock_that_was_taken_away_says_that_it_is_lost() {
    let server = Server::start(|what, count| match what {
        RELEASE => Some((409, NOT_HOLDER)),
        _ => friendly(what, count),
    })
    .await;
    let client = LockClient::new([&server.address]).unwrap();
    let session = client.session().open().await.unwrap();
    let guard = session.acquire("a", AcquireOptions::exclusive()).await.unwrap();
    assert_eq!(guard.release().await, Err(Error::Lost(Loss::TakenAway)));
    // Its own end is the reason too, without a request.
    let guard = session.acquire("a", AcquireOptions::exclusive()).await.unwrap();
    session.close().await.unwrap();
    assert_eq!(guard.check(), Err(Error::Lost(Loss::Closed)));
    assert_eq!(guard.release().await, Err(Error::Lost(Loss::Closed)));
    assert_eq!(
        server
            .heard()
            .iter()
            .filter(|heard| heard.what == RELEASE)
            .count(),
        1
    );
}

#[tokio::test]
async fn client_that_was_shut_down_sends_nothing_more() {
    let server = Server::start(friendly).await;
    let client = LockClient::new([&server.address]).unwrap();
    let session = client.session().open().await.unwrap();
    let guard = session.acquire("a", AcquireOptions::exclusive()).await.unwrap();
    client.clone().shut_down().await;
    assert_eq!(guard.lost().await, Loss::Stopped);
    has_received(&server, "DELETE /v1/sessions/s1", 1).await;
    let asked = server.heard().len();
    assert_eq!(guard.release().await, Err(Error::Lost(Loss::Stopped)));
    assert_eq!(client.session().open().await.unwrap_err(), Error::Stopped);
    assert_eq!(client.locks("").await, Err(Error::Stopped));
    assert_eq!(server.heard().len(), asked);
}

#[test]
fn blocking_calls_need_no_runtime_and_heartbeats_go_on_while_the_thread_is_busy() {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let server = runtime.block_on(Server::start(friendly));
    let client = blocking::LockClient::new([&server.address]).unwrap();
    let session = client.session().name("blocking").open().unwrap();
    let guard = session.acquire("a", AcquireOptions::exclusive()).unwrap();
    // Nothing of the client runs on this thread meanwhile.
    runtime.block_on(has_received(&server, HEARTBEAT, 2));
    assert_eq!(u64::from(guard.check().unwrap()), 7);
    assert_eq!(guard.lost_within(Duration::from_millis(1)), Ok(None));
    assert_eq!(guard.release(), Ok(0));
    session.close().unwrap();
    let requested = server
        .heard()
        .iter()
        .filter(|heard| heard.what == RELEASE)
        .count();
    assert_eq!(requested, 1);
}
