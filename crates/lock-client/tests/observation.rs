//! Counts and trace context of a client.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on may say so shortly, also in its helpers"
)]

mod server;

use std::time::Duration;

use lock_client::{AcquireOptions, LockClient};
use server::{Answer, Server};

/// Maximum time of every wait.
const TIMEOUT: Duration = Duration::from_secs(30);

const CONTEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

const HEARTBEAT: &str = "POST /v1/sessions/s1/heartbeat";

const GRANT: &str = r#"{"lock": "a", "mode": "exclusive", "holder": "h", "session": "s1", "owner": "", "note": "", "fencing_token": 7,
    "holds": 1, "permits": 1}"#;

fn answer(what: &str, count: usize) -> Answer {
    Some(match what {
        "POST /v1/sessions" => (201, r#"{"session": "s1", "ttl_ms": 60000}"#),
        HEARTBEAT => (200, r#"{"ttl_ms": 60000, "leads": true}"#),
        "POST /v1/locks/a/acquire" => (200, GRANT),
        "POST /v1/locks/b/acquire" => (409, r#"{"code": "lock_busy", "detail": "it is held"}"#),
        "GET /v1/sessions/s1/events" => (410, r#"{"code": "session_expired", "detail": "it has ended"}"#),
        // The first one is cut, and sent again.
        "GET /v1/locks" if count == 1 => return None,
        "GET /v1/locks" => (200, r#"{"locks": [], "next_cursor": null}"#),
        other => panic!("{other} is not expected"),
    })
}

#[tokio::test]
async fn stats_count_requests_retries_acquires_and_losses() {
    let server = Server::start(answer).await;
    let client = LockClient::builder([&server.address]).build().unwrap();
    client.locks("").await.unwrap();
    let session = client.session().open().await.unwrap();
    let guard = session.acquire("a", AcquireOptions::exclusive()).await.unwrap();
    tokio::time::timeout(TIMEOUT, guard.lost()).await.unwrap();
    let session = client.session().open().await.unwrap();
    let busy = session.acquire("b", AcquireOptions::exclusive()).await;
    assert!(busy.unwrap_err().is_not_free());
    let stats = client.stats();
    assert_eq!((stats.requests, stats.requests_refused), (6, 1), "{stats:?}");
    assert_eq!((stats.requests_unknown, stats.retries), (1, 1), "{stats:?}");
    assert_eq!((stats.sessions_opened, stats.heartbeats), (2, 0), "{stats:?}");
    assert_eq!((stats.acquired, stats.not_free), (1, 1), "{stats:?}");
    assert_eq!(stats.lost.into_iter().collect::<Vec<_>>(), [("expired", 1)]);
}

#[tokio::test]
async fn requests_of_a_caller_carry_its_trace_context_and_heartbeats_none() {
    let server = Server::start(answer).await;
    let client = LockClient::builder([&server.address])
        .at_leader(true)
        .traceparent(|| Some(CONTEXT.to_owned()))
        .build()
        .unwrap();
    let session = client.session().open().await.unwrap();
    let mut heard = server.heard.clone();
    let beaten = heard.wait_for(|heard| heard.iter().any(|heard| heard.what == HEARTBEAT));
    tokio::time::timeout(TIMEOUT, beaten).await.unwrap().unwrap();
    let _guard = session.acquire("a", AcquireOptions::exclusive()).await.unwrap();
    for heard in server.heard() {
        let expected = match heard.what.as_str() {
            HEARTBEAT | "GET /v1/sessions/s1/events" => "",
            _ => CONTEXT,
        };
        assert_eq!(heard.traceparent, expected, "{}", heard.what);
    }
    assert!(client.stats().heartbeats > 0);
}
