//! Hostile text at the port for peers: in place of a hello, and in a hello.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::OnceLock;

use bytes::BytesMut;
use lockgate::lock_node::fuzz::{DiskId, FrameReader, PeerRegistry, Purpose, put_frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::hostile::texts;
use crate::in_time;

/// Returns the address of the node for peers: a port that was free a moment ago.
pub fn address() -> SocketAddr {
    static ADDRESS: OnceLock<SocketAddr> = OnceLock::new();
    *ADDRESS.get_or_init(|| {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.local_addr().unwrap()
    })
}

/// Sends bytes that are no hello, and hellos of clusters and programs with such names.
pub async fn send_all() {
    for text in texts() {
        send(text.as_bytes()).await;
        let stranger = PeerRegistry::new(
            2,
            text.clone(),
            DiskId([2; 16]),
            None,
            Default::default(),
            watch::Sender::new(None),
        );
        let mut hello = stranger.hello(1, Purpose::Control);
        hello.program = text.clone();
        send_hello(&hello).await;
        hello.cluster = "lockgate".into();
        send_hello(&hello).await;
    }
}

async fn send_hello(hello: &lockgate::lock_node::fuzz::Hello) {
    let mut out = BytesMut::new();
    put_frame(&mut out, hello);
    let answered = send(&out).await;
    let mut reader = FrameReader::new(&answered[..]);
    let reply = reader.next().await.unwrap();
    assert!(reply.is_some(), "a hello is answered");
}

async fn send(bytes: &[u8]) -> Vec<u8> {
    in_time("the node hangs up", async {
        let mut stream = TcpStream::connect(address()).await.unwrap();
        let mut answered = Vec::new();
        if stream.write_all(bytes).await.is_ok() && stream.shutdown().await.is_ok() {
            let _: Result<usize, _> = stream.read_to_end(&mut answered).await;
        }
        answered
    })
    .await
}
