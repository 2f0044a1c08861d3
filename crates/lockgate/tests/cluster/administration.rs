//! Administration port: it serves operators when clients have taken all connections.

use std::net::SocketAddr;

use cli_support::http_client;
use local_cluster::ports::free_ports;
use lockgate::Lockgate;
use lockgate::lock_api::http::HttpConfig;
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::harness::eventually;

/// Returns the status of a request; `None` if the connection was closed early.
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

    let mut connections = Vec::new();
    for _ in 0..3 {
        connections.push(TcpStream::connect(http).await.unwrap());
    }
    // All connections are taken when the node rejects the next one before it has sent anything.
    eventually("all connections are taken", async || {
        let mut answer = Vec::new();
        let mut stream = TcpStream::connect(http).await.unwrap();
        let read = tokio::time::timeout(
            std::time::Duration::from_millis(200),
            stream.read_to_end(&mut answer),
        );
        read.await.is_ok() && answer.starts_with(b"HTTP/1.1 503 ")
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
    drop(connections);
    eventually("clients are served again", async || {
        status(http, "/healthz").await == Some(200)
    })
    .await;
    server.stop().await;
}
