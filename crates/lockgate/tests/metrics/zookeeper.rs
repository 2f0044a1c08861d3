//! Minimal ZooKeeper client: it opens a session, reads the root, and closes the session.

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use zk_wire::{ConnectRequest, Request};

/// Runs the requests at a server, and reads all answers until the server closes the connection.
pub async fn ask_once(server: &str) {
    let connect = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0,
        timeout_ms: 10_000,
        session_id: 0,
        password: Some(Bytes::from_static(&[0; 16])),
        read_only: Some(false),
    };
    let mut out = BytesMut::new();
    connect.write_frame(&mut out);
    let path = "/".to_owned();
    Request::GetData { path, watch: false }.write_frame(1, &mut out);
    Request::CloseSession.write_frame(2, &mut out);
    let mut stream = TcpStream::connect(server).await.expect("the server listens");
    stream
        .write_all(&out)
        .await
        .expect("the server reads the requests");
    let mut answers = Vec::new();
    let answered = stream.read_to_end(&mut answers).await;
    answered.expect("the server closes the connection with the session");
    assert!(answers.len() > 100, "three answers: {answers:?}");
}
