//! Streams transfer data in the same way with and without TLS.

use std::io::IoSlice;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use transport_security::Stream;

use crate::support::{Ca, End, duplex, meet, node, peer};

/// Larger than any buffer on the way.
const MANY: usize = 300_000;

async fn carries(mut from: End, mut to: End) {
    let bytes: Vec<u8> = (0..MANY).map(|at| (at % 251) as u8).collect();
    let write = async {
        let (first, rest) = bytes.split_at(MANY / 3);
        let written = from
            .write_vectored(&[IoSlice::new(first), IoSlice::new(rest)])
            .await
            .unwrap();
        from.write_all(&bytes[written..]).await.unwrap();
        from.shutdown().await.unwrap();
        from
    };
    let read = async {
        let mut received = Vec::new();
        to.read_to_end(&mut received).await.unwrap();
        received
    };
    let (_from, received) = tokio::join!(write, read);
    assert!(received == bytes, "{} bytes arrived", received.len());
}

#[tokio::test]
async fn written_bytes_arrive_unchanged() {
    let (here, there) = duplex();
    let (here, there): (End, End) = (here.into(), there.into());
    assert!(!here.is_tls());
    carries(here, there).await;

    let ca = Ca::new();
    let (one, two) = (
        peer(&ca.issue("1", &node("c", 1)), 1),
        peer(&ca.issue("2", &node("c", 2)), 2),
    );
    let (called, taken) = meet(&one, &two).await;
    let (here, (there, _)) = (called.unwrap(), taken.unwrap());
    assert!(here.is_tls() && matches!(there, Stream::Tls(_)));
    carries(here, there).await;
}

#[tokio::test]
async fn broken_tls_connection_is_an_unexpected_eof() {
    let ca = Ca::new();
    let (one, two) = (
        peer(&ca.issue("1", &node("c", 1)), 1),
        peer(&ca.issue("2", &node("c", 2)), 2),
    );
    let (called, taken) = meet(&one, &two).await;
    let (here, (mut there, _)) = (called.unwrap(), taken.unwrap());
    // Without the close_notify alert of TLS, the received data may be truncated.
    drop(here);
    let error = there.read(&mut [0; 1]).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
}
