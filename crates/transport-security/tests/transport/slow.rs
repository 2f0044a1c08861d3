//! Slow handshakes beside fast ones.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use transport_security::{
    ClientCertificates, ClientTls, HandshakeError, HandshakeLimits, OldestVersion, ServerTls,
};

use crate::support::{Ca, node};

#[tokio::test]
async fn slow_handshakes_end_while_others_succeed() {
    let ca = Ca::new();
    let files = ca.issue("server", &node("c", 1));
    let bounds = HandshakeLimits {
        timeout: Duration::from_secs(1),
        at_once: 8,
    };
    let (certificate, key) = (&files.certificate, &files.key);
    let (ignored, oldest) = (ClientCertificates::Ignored, OldestVersion::default());
    let server = ServerTls::new("HTTP", certificate, key, ignored, &[], oldest, bounds).unwrap();
    let client = ClientTls::new(&ca.ca(), None).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();

    let (results, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let accepting = tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let (server, results) = (server.clone(), results.clone());
            tokio::spawn(async move {
                // The receiver is gone if the test has ended.
                let _ = results.send(server.accept(socket).await.map(drop));
            });
        }
    });
    // More connections than the limit, each with the first bytes of a ClientHello.
    let mut slow = Vec::new();
    for _ in 0..12 {
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(&[0x16, 0x03, 0x01, 0x02]).await.unwrap();
        slow.push(socket);
    }
    for _ in 0..30 {
        let socket = TcpStream::connect(address).await.unwrap();
        client.connect("127.0.0.1", socket).await.unwrap();
    }
    let (mut crowded, mut timed_out, mut served) = (0, 0, 0);
    while crowded + timed_out + served < 42 {
        match ended.recv().await.unwrap() {
            Ok(()) => served += 1,
            Err(HandshakeError::Crowded) => crowded += 1,
            Err(HandshakeError::TimedOut) => timed_out += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!((served, crowded + timed_out), (30, 12));
    assert!(crowded >= 4, "{crowded} were cancelled");
    accepting.abort();
}
