//! Tests of the proxy between a client and a server of the test.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// Time limit of every wait in these tests.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Starts an echo server in slot 2, and a proxy for a client in slot 1.
async fn echo() -> Arc<Proxy> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let address = listener.local_addr().expect("it listens");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                tokio::io::copy(&mut from, &mut to).await
            });
        }
    });
    let peers = [(1, address), (2, address)];
    Proxy::for_links(&peers, IpAddr::V4(Ipv4Addr::LOCALHOST), 7)
        .await
        .expect("ports for all links")
}

async fn connect(proxy: &Proxy) -> TcpStream {
    let entrance = proxy.entrance((1, 2)).expect("the link has an entrance");
    TcpStream::connect(entrance).await.expect("the proxy accepts")
}

/// Sends a byte and waits for its echo; returns the time that this took.
async fn round(stream: &mut TcpStream) -> std::io::Result<Duration> {
    let begun = Instant::now();
    stream.write_all(b"x").await?;
    let mut back = [0];
    tokio::time::timeout(TIMEOUT, stream.read_exact(&mut back))
        .await
        .expect("an echo in time")?;
    Ok(begun.elapsed())
}

#[tokio::test]
async fn traffic_is_delayed_in_each_direction() {
    let proxy = echo().await;
    let mut stream = connect(&proxy).await;
    round(&mut stream).await.expect("a fine link");
    assert_eq!(proxy.sum(|counts| &counts.delayed), 0);
    let delay = Duration::from_millis(60);
    proxy.set(
        (1, 2),
        LinkConditions {
            delay,
            ..LinkConditions::default()
        },
    );
    let took = round(&mut stream).await.expect("a slow link");
    assert!(took >= 2 * delay, "{took:?}");
    assert_eq!(proxy.count((1, 2), |counts| &counts.delayed), 2);
    assert_eq!(proxy.count((2, 1), |counts| &counts.delayed), 0);
}

#[tokio::test]
async fn one_way_cut_holds_traffic_back_in_its_direction_until_healed() {
    let proxy = echo().await;
    let mut stream = connect(&proxy).await;
    round(&mut stream).await.expect("a fine link");
    // Cuts the direction from the server to the client.
    proxy.cut(&BTreeSet::from([(2, 1)]));
    stream
        .write_all(b"x")
        .await
        .expect("the direction to the server is open");
    let held = async {
        while proxy.count((1, 2), |counts| &counts.held) == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, held)
        .await
        .expect("the echo is held back");
    let mut back = [0];
    let nothing = stream.try_read(&mut back).expect_err("nothing passes a cut");
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
    proxy.cut(&BTreeSet::new());
    let echo = tokio::time::timeout(TIMEOUT, stream.read_exact(&mut back)).await;
    echo.expect("the echo in time")
        .expect("the echo arrives after the healing");
}

#[tokio::test]
async fn connections_of_a_link_are_reset_together() {
    let proxy = echo().await;
    let (mut one, mut other) = (connect(&proxy).await, connect(&proxy).await);
    round(&mut one).await.expect("a fine link");
    round(&mut other).await.expect("a fine link");
    proxy.reset((1, 2));
    let mut back = [0];
    for stream in [&mut one, &mut other] {
        let ended = tokio::time::timeout(TIMEOUT, stream.read(&mut back))
            .await
            .expect("in time");
        assert_eq!(
            ended.expect_err("a reset").kind(),
            std::io::ErrorKind::ConnectionReset
        );
    }
    round(&mut connect(&proxy).await)
        .await
        .expect("new connections work as before");
}
