//! Log of a node at the most verbose level while it receives hostile text: every event stays on one line,
//! does not control a terminal, and contains no secret.
//!
//! There is one test, in a process of its own, because a process has one log.

#![allow(clippy::unwrap_used, reason = "a failed test may panic, also in its helpers")]

mod http;
mod hostile;
mod log;
mod peer;
mod zookeeper;

use std::time::Duration;

use lockgate::Lockgate;
use lockgate::log_writer::EscapeStyle;

use crate::log::Log;

/// Time limit of a step.
const TIMEOUT: Duration = Duration::from_secs(120);

#[tokio::test]
async fn hostile_text_does_not_forge_the_log() {
    let (text, json) = (Log::new(EscapeStyle::Text), Log::new(EscapeStyle::Json));
    log::start(&text, &json);
    let dir = tempfile::tempdir().unwrap();
    let server = Lockgate::builder()
        .member(1, "127.0.0.1:0", "127.0.0.1:0")
        .data_dir(dir.path())
        .http_listen("127.0.0.1:0")
        .zookeeper_listen("127.0.0.1:0")
        .peer_listen(peer::address())
        .start()
        .await
        .unwrap();
    in_time("the node leads itself", async {
        while !server.node().status().ready {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;

    http::send_all(server.http_address().unwrap()).await;
    let passwords = zookeeper::send_all(server.zookeeper_address().unwrap()).await;
    peer::send_all().await;
    in_time("the server stops", server.stop()).await;

    for log in [&text, &json] {
        let written = log.written();
        // The hostile text is in the log; otherwise the test would check nothing.
        assert!(written.contains(hostile::MARK), "nothing hostile was logged");
        log.check_lines();
        for secret in hostile::SECRETS {
            assert!(!written.contains(secret), "{secret} is in the log");
        }
        for password in &passwords {
            for form in log::forms(password) {
                assert!(
                    !written.contains(&form),
                    "a session's password is in the log: {form}"
                );
            }
        }
    }
}

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(TIMEOUT, future).await {
        Ok(value) => value,
        Err(_) => panic!("not in time: {what}"),
    }
}
