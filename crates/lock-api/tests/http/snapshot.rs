//! The download of a backup.

use lock_node::backup::BackupReader;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Server, in_time};

/// Returns the head and the body of an answer.
async fn fetch(server: &Server, path: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    in_time("the answer ends", stream.read_to_end(&mut answer))
        .await
        .unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let body = answer.split_off(end);
    (String::from_utf8(answer).unwrap().to_lowercase(), body)
}

#[tokio::test]
async fn downloaded_backup_is_complete_and_verifiable() {
    let server = Server::start().await;
    for n in 0..3 {
        let large = "x".repeat(700_000);
        server
            .post(&format!("/v1/znodes/large-{n}"), json!({"data": large}))
            .await
            .expect(201);
        for path in ["/v1/snapshot", "/v1/snapshot?linearizable=false"] {
            let (head, body) = fetch(&server, path).await;
            assert!(head.starts_with("http/1.1 200"), "{head}");
            assert!(head.contains("content-type: application/octet-stream"), "{head}");
            assert!(
                head.contains(&format!("content-length: {}", body.len())),
                "{head}"
            );
            assert!(head.contains("attachment; filename=\"lockgate-"), "{head}");
            let mut reader = BackupReader::open(&body[..]).unwrap();
            let store = reader.load().unwrap();
            // The root and /zookeeper count as well.
            assert_eq!(store.node_count(), 4 + n + 1);
            assert_eq!(reader.head().cluster, "test");
        }
    }
    let refused = server.get("/v1/snapshot?to=disk").await;
    refused.problem(400, "bad_request");
    server.stop().await;
}

#[tokio::test]
async fn concurrent_backups_are_bounded_when_receivers_do_not_read() {
    let server = Server::start().await;
    for n in 0..40 {
        let large = "x".repeat(1_000_000);
        server
            .post(&format!("/v1/znodes/large-{n}"), json!({"data": large}))
            .await
            .expect(201);
    }
    let mut idle = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let request = b"GET /v1/snapshot HTTP/1.1\r\nhost: localhost\r\n\r\n";
        stream.write_all(request).await.unwrap();
        // The answer has begun, and is larger than the socket buffers.
        let mut first = [0; 16];
        in_time("the head comes", stream.read_exact(&mut first))
            .await
            .unwrap();
        idle.push(stream);
    }
    let refused = server.get("/v1/snapshot").await;
    refused.problem(429, "too_many_requests");
    drop(idle);
    crate::support::until("the places are free again", async || {
        let (head, _) = fetch(&server, "/v1/snapshot").await;
        head.starts_with("http/1.1 200")
    })
    .await;
    server.stop().await;
}
