//! Hostile text in all parts of HTTP requests, at every route.

use std::net::SocketAddr;

use lockgate::lock_api::http::addresses;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::hostile::{TOKEN, texts};
use crate::in_time;

/// Sends all methods to all addresses with hostile text in each, and then acquires and breaks a lock among
/// them.
pub async fn send_all(server: SocketAddr) {
    for text in texts() {
        for address in addresses() {
            // Streams and downloads would be read to their ends; other requests to their addresses log the
            // same.
            let path = put(address, &text);
            for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
                ask(server, method, &path, Some(body(&text))).await;
            }
            let named = format!("{}?session={1}&prefix={1}", put(address, &text), encode(&text));
            ask(server, "GET", &named, None).await;
            // An unknown token is rejected, and is a secret all the same: it may be another cluster's.
            ask_with(server, "POST", &path, Some(body(&text)), Some(TOKEN)).await;
        }
        a_lock(server, &text).await;
        a_quota(server, &text).await;
        raw(server, text.as_bytes()).await;
        raw(
            server,
            format!("GET /{text} HTTP/1.1\r\nHost: {text}\r\n\r\n").as_bytes(),
        )
        .await;
    }
}

/// Returns an address of axum's form with the text in all its parameters.
fn put(address: &str, text: &str) -> String {
    let parts = address.split('/').map(|part| match part.starts_with('{') {
        true => encode(text),
        false => part.to_owned(),
    });
    let path = parts.collect::<Vec<_>>().join("/");
    match address {
        // Without `after` the stream would never end.
        "/v1/events" => format!("{path}?zxid={}", encode(text)),
        _ if address.starts_with("/v1/watch") => format!("{path}?timeout_ms=1"),
        _ => path,
    }
}

fn encode(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Returns a body with every text field of any request. Each request knows only some of them, so each is also
/// sent alone.
fn body(text: &str) -> Value {
    json!({
        "name": text, "note": text, "owner": text, "reason": text, "holder": text, "session": text, "data": text,
        "description": text, "subject": text, "role": text, "peer": format!("127.0.0.1:1{text}"), "request_id": text,
    })
}

async fn a_lock(server: SocketAddr, text: &str) {
    // If the text is rejected, it is in the error, and the lock is acquired without it.
    let mut session = ask(
        server,
        "POST",
        "/v1/sessions",
        Some(json!({"name": text, "ttl_ms": 60_000})),
    )
    .await;
    if !session["session"].is_string() {
        session = ask(server, "POST", "/v1/sessions", Some(json!({"ttl_ms": 60_000}))).await;
    }
    let session = session["session"]
        .as_str()
        .expect("sessions can be opened")
        .to_owned();
    let lock = format!("/v1/locks/{}", encode("a lock"));
    let acquire = format!("{lock}/acquire");
    let wish = json!({"session": session, "wait_ms": 0, "note": text, "owner": text});
    let mut held = ask(server, "POST", &acquire, Some(wish)).await;
    if !held["fencing_token"].is_number() {
        held = ask(
            server,
            "POST",
            &acquire,
            Some(json!({"session": session, "wait_ms": 0})),
        )
        .await;
    }
    assert!(held["fencing_token"].is_number(), "{held}");
    let reason = json!({"reason": text, "holder": held["holder"]});
    ask(
        server,
        "POST",
        &format!("{lock}/release-request"),
        Some(json!({"reason": text})),
    )
    .await;
    ask(server, "POST", &format!("{lock}/break"), Some(reason)).await;
    let znode = format!("/v1/znodes/{}", encode("a znode"));
    ask(server, "POST", &znode, Some(json!({"data": text}))).await;
    ask(server, "DELETE", &znode, None).await;
    ask(server, "DELETE", &format!("/v1/sessions/{session}"), None).await;
}

/// Exceeds a soft quota, which logs a warning with the name of its znode.
async fn a_quota(server: SocketAddr, text: &str) {
    let name = encode(text);
    let quota = format!("/v1/znodes/zookeeper/quota/{name}");
    for (path, data) in [
        (format!("/v1/znodes/{name}"), ""),
        (format!("{quota}/zookeeper_limits"), "count=1,bytes=-1"),
        (format!("{quota}/zookeeper_stats"), ""),
        (format!("/v1/znodes/{name}/beyond"), ""),
    ] {
        ask(
            server,
            "POST",
            &path,
            Some(json!({"data": data, "parents": true})),
        )
        .await;
    }
}

/// Sends a request without a token. Returns the JSON of the answer, if it is one.
async fn ask(server: SocketAddr, method: &str, path: &str, body: Option<Value>) -> Value {
    ask_with(server, method, path, body, None).await
}

async fn ask_with(
    server: SocketAddr,
    method: &str,
    path: &str,
    body: Option<Value>,
    token: Option<&str>,
) -> Value {
    let body = body.map(|body| body.to_string()).unwrap_or_default();
    let shown = token.map_or(String::new(), |token| {
        format!("Authorization: Bearer {token}\r\n")
    });
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{shown}Connection: close\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(server).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = read(&mut stream).await;
    assert!(!answer.is_empty(), "no answer to {method} {path}");
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).unwrap_or_default()
}

/// Sends bytes and closes the connection.
async fn raw(server: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(server).await.unwrap();
    // A server may close the connection before it has read everything.
    if stream.write_all(bytes).await.is_ok() && stream.shutdown().await.is_ok() {
        read(&mut stream).await;
    }
}

/// Reads until the server closes the connection.
async fn read(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    // A reset is as good as a regular end.
    let _: Result<usize, _> = in_time("an answer", stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}
