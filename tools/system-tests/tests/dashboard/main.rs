//! The dashboard in a real browser, against clusters of real processes: the content of the pages, and the
//! effects of actions.
//!
//! LOCKGATE_BROWSER=required fails the tests on a machine without a browser. LOCKGATE_PICTURES=DIRECTORY
//! saves screenshots of all views in both themes. LOCKGATE_MANY=N runs the test of long lists with N locks
//! and N sessions.

// clippy's exception for tests does not reach their helpers.
#![allow(clippy::unwrap_used)]

mod browser;
mod live_updates;
#[path = "../../../../crates/lockgate/tests/cluster/harness.rs"]
#[allow(dead_code, reason = "these tests need a part of what the cluster tests need")]
mod harness;
mod hostile;
mod appearance;
mod many;
mod secured;
mod dev_tools;

use std::time::Instant;

use lock_node::admission::BUSY_RETRY;
use serde_json::{Value, json};

use browser::Browser;
use harness::{TIMEOUT, TestCluster};

/// The program under test.
pub const LOCKGATE: &str = env!("CARGO_BIN_EXE_lockgate-with-faults");

/// Returns the address of a node's page, with a fragment.
fn page(cluster: &TestCluster, id: u64, place: &str) -> String {
    format!("{}/#/{place}", cluster.url_of(cluster.node(id).unwrap()))
}

/// Encodes a lock's or session's name as a part of an address.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes()
        .map(|byte| match plain(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}

/// Sends a request that must succeed, with a token if there is one. On a busy machine a node may shed some of
/// many simultaneous requests before it does anything; those are repeated, as any client would.
async fn must(cluster: &TestCluster, id: u64, method: &str, path: &str, body: Value) -> Value {
    let deadline = Instant::now() + TIMEOUT;
    let response = loop {
        let response = cluster.send(id, method, path, &body).await;
        let is_busy = response.code() == "unavailable";
        if !is_busy || Instant::now() > deadline {
            break response;
        }
        tokio::time::sleep(BUSY_RETRY).await;
    };
    assert!(
        response.status < 300,
        "{method} {path}: {} {}",
        response.status,
        response.json()
    );
    match response.status {
        204 => Value::Null,
        _ => response.json(),
    }
}

/// Acquires a lock that is free.
async fn acquire(cluster: &TestCluster, id: u64, session: &str, lock: &str, note: &str) -> Value {
    let body = json!({"session": session, "note": note});
    must(
        cluster,
        id,
        "POST",
        &format!("/v1/locks/{}/acquire", encoded(lock)),
        body,
    )
    .await
}

/// Opens a session that outlives the test.
async fn session(cluster: &TestCluster, id: u64, name: &str) -> String {
    let opened = must(
        cluster,
        id,
        "POST",
        "/v1/sessions",
        json!({"ttl_ms": 300_000, "name": name}),
    )
    .await;
    opened["session"].as_str().unwrap().to_owned()
}

/// Asserts that the page has reported no problem.
fn assert_content(browser: &Browser) {
    assert_eq!(browser.page_errors(), Vec::<String>::new());
}
