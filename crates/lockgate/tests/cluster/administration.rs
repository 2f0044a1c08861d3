//! The door for administration: clients that have taken all places keep nobody out who looks after the cluster.

use std::net::SocketAddr;

use cli_support::http_client;
use local_cluster::layout::free_ports;
use lockgate::Lockgate;
use lockgate::lock_api::http::HttpConfig;
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::harness::eventually;

/// The status of a request, as a caller sees it that does not care whether its connection was closed early.
async fn status(address: SocketAddr, path: &str) -> Option<u16> {
    let answer = http_client::request(&address.to_string(), "GET", path, "").await;
    answer.ok().map(|answer| answer.status)
}

#[tokio::test]
async fn administration_port_serves_when_clients_have_taken_all_connections() {
    let dir = TempDir::new().unwrap();
    let ports = free_ports(2).unwrap();
    let server = Lockgate::builder()
        .member(
            1,
            format!("127.0.0.1:{}", ports[0]),
            format!("127.0.0.1:{}", ports[1]),
        )
        .data_dir(dir.path())
        .http_listen("127.0.0.1:0")
        .http_config(HttpConfig {
            max_connections: 3,
            ..HttpConfig::default()
        })
        .admin_listen("127.0.0.1:0")
        .start()
        .await
        .unwrap();
    eventually("the node leads itself", async || server.node().status().ready).await;
    let (http, admin) = (server.http_address().unwrap(), server.admin_address().unwrap());

    let mut places = Vec::new();
    for _ in 0..3 {
        places.push(TcpStream::connect(http).await.unwrap());
    }
    // They are taken when the next one is refused, before it has said anything.
    eventually("all places are taken", async || {
        let mut told = Vec::new();
        let mut stream = TcpStream::connect(http).await.unwrap();
        let read = tokio::time::timeout(
            std::time::Duration::from_millis(200),
            stream.read_to_end(&mut told),
        );
        read.await.is_ok() && told.starts_with(b"HTTP/1.1 503 ")
    })
    .await;
    for path in [
        "/healthz",
        "/readyz",
        "/metrics",
        "/v1/cluster",
        "/v1/sessions",
        "/v1/locks",
    ] {
        assert_eq!(status(admin, path).await, Some(200), "{path}");
    }
    drop(places);
    eventually("clients are let in again", async || {
        status(http, "/healthz").await == Some(200)
    })
    .await;
    server.stop().await;
}
