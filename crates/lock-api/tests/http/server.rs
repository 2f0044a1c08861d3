//! The accept loop: hang-ups, slow callers, connection limits, shutdown. It needs no node, so it has none.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::get;
use lock_api::http::{HttpConfig, Peer, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::{Call, in_time, until};

/// Handlers that wait until a test releases them.
#[derive(Clone)]
struct Gate {
    /// Number of requests in their handler.
    inside: Arc<AtomicUsize>,
    /// Permits that let handlers continue.
    open: Arc<Semaphore>,
}

struct Loop {
    address: SocketAddr,
    gate: Gate,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Guard that decrements the count when its handler or answer ends.
struct Leave(Arc<AtomicUsize>);

impl Drop for Leave {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn start(config: HttpConfig) -> Loop {
    let gate = Gate {
        inside: Arc::default(),
        open: Arc::new(Semaphore::new(0)),
    };
    let held = gate.clone();
    let wait = move || async move {
        held.inside.fetch_add(1, Ordering::SeqCst);
        let _leave = Leave(held.inside);
        held.open.acquire().await.unwrap().forget();
        "through"
    };
    let address = |peer: Peer| async move { peer.shown().to_string() };
    let streamed = gate.inside.clone();
    let stream = move || async move {
        streamed.fetch_add(1, Ordering::SeqCst);
        let leave = Leave(streamed);
        Body::from_stream(futures_util::stream::once(async move {
            let _leave = leave;
            std::future::pending::<Result<Bytes, std::io::Error>>().await
        }))
    };
    let router = Router::new()
        .route("/wait", get(wait))
        .route("/stream", get(stream))
        .route("/address", get(address));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let task = tokio::spawn(serve(
        listener,
        router,
        config,
        None,
        None,
        stop.clone().cancelled_owned(),
    ));
    Loop {
        address,
        gate,
        stop,
        task,
    }
}

impl Loop {
    async fn until_inside(&self, count: usize) {
        until("the handlers run", async || {
            self.gate.inside.load(Ordering::SeqCst) == count
        })
        .await;
    }

    async fn wait(&self) -> Call {
        ask(self.address, "/wait").await
    }

    async fn stop(self) {
        self.stop.cancel();
        in_time("the loop ends", self.task).await.unwrap();
    }
}

async fn ask(address: SocketAddr, path: &str) -> Call {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    Call::of_another_server(stream)
}

#[tokio::test]
async fn hang_up_drops_the_handler() {
    let server = start(HttpConfig::default()).await;
    let call = server.wait().await;
    server.until_inside(1).await;
    drop(call);
    server.until_inside(0).await;

    // The same for a caller that only stops sending, because it could as well have crashed.
    let mut call = server.wait().await;
    server.until_inside(1).await;
    call.stream.shutdown().await.unwrap();
    server.until_inside(0).await;
    server.stop().await;
}

#[tokio::test]
async fn hang_up_is_detected_after_pipelined_bytes() {
    let server = start(HttpConfig::default()).await;
    let next = "GET /address HTTP/1.1\r\nHost: test\r\n\r\n";
    for path in ["/wait", "/stream"] {
        let head = format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n");
        for behind in ["\r\n", "\r\n\r\n", "GET /addr", next, &next.repeat(100)] {
            for at_once in [true, false] {
                for half in [true, false] {
                    let mut stream = TcpStream::connect(server.address).await.unwrap();
                    if at_once {
                        let both = format!("{head}{behind}");
                        stream.write_all(both.as_bytes()).await.unwrap();
                        server.until_inside(1).await;
                    } else {
                        stream.write_all(head.as_bytes()).await.unwrap();
                        server.until_inside(1).await;
                        stream.write_all(behind.as_bytes()).await.unwrap();
                    }
                    if half {
                        stream.shutdown().await.unwrap();
                    } else {
                        drop(stream);
                    }
                    server.until_inside(0).await;
                }
            }
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn pipelined_requests_are_served_in_order() {
    let server = start(HttpConfig::default()).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let wait = "GET /wait HTTP/1.1\r\nHost: test\r\n\r\n";
    let next = "GET /address HTTP/1.1\r\nHost: test\r\n\r\n";
    stream
        .write_all(format!("{wait}{next}").as_bytes())
        .await
        .unwrap();
    server.until_inside(1).await;
    // Some bytes are read ahead, and some arrive when the first request is served already.
    stream.write_all(next.repeat(200).as_bytes()).await.unwrap();
    server.gate.open.add_permits(1);
    let last = "GET /address HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    stream.write_all(last.as_bytes()).await.unwrap();
    let mut answers = String::new();
    in_time("the answers come", stream.read_to_string(&mut answers))
        .await
        .unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 203);
    server.stop().await;
}

#[tokio::test]
async fn missing_head_ends_the_connection() {
    let config = HttpConfig {
        header_timeout: Duration::from_millis(50),
        ..HttpConfig::default()
    };
    let server = start(config).await;
    let hangs_up_on = async |beginning: &str| {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(beginning.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        in_time("the server hangs up", stream.read_to_end(&mut rest))
            .await
            .unwrap();
    };
    for beginning in ["", "GET /wait HTT"] {
        hangs_up_on(beginning).await;
    }
    // The timeout bounds the head and not the answer: a request that began to wait before still gets its answer.
    let call = server.wait().await;
    server.until_inside(1).await;
    hangs_up_on("").await;
    server.gate.open.add_permits(1);
    assert_eq!(call.reply().await.body, "through");
    server.stop().await;
}

#[tokio::test]
async fn first_head_has_a_shorter_timeout_than_later_heads() {
    let config = HttpConfig {
        first_header_timeout: Duration::from_millis(50),
        ..HttpConfig::default()
    };
    let server = start(config).await;
    let ask = "GET /address HTTP/1.1\r\nHost: test\r\n\r\n";
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    idle.write_all(ask.as_bytes()).await.unwrap();
    let mut first = [0; 1];
    in_time("the answer begins", idle.read_exact(&mut first))
        .await
        .unwrap();
    for beginning in ["", "GET /address HTT"] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(beginning.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        in_time("the server hangs up", stream.read_to_end(&mut rest))
            .await
            .unwrap();
        assert!(rest.is_empty(), "{rest:?}");
    }
    // The connection that has sent a request has been idle for longer than the others.
    let last = "GET /address HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    idle.write_all(last.as_bytes()).await.unwrap();
    let mut answers = String::new();
    in_time("the answers come", idle.read_to_string(&mut answers))
        .await
        .unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 1);
    server.stop().await;
}

#[tokio::test]
async fn refused_connections_get_an_answer_at_once() {
    for (in_all, of_an_address, status) in [(2, 9, 503), (9, 2, 429)] {
        let server = start(HttpConfig {
            max_connections: in_all,
            max_connections_per_address: of_an_address,
            ..HttpConfig::default()
        })
        .await;
        let first = server.wait().await;
        let _second = server.wait().await;
        server.until_inside(2).await;
        let mut third = TcpStream::connect(server.address).await.unwrap();
        let mut told = String::new();
        in_time("the third gets an answer", third.read_to_string(&mut told))
            .await
            .unwrap();
        assert!(told.starts_with(&format!("HTTP/1.1 {status} ")), "{told}");
        assert!(told.contains("\r\nretry-after: 1\r\n"), "{told}");
        // One of the two requests is served and closes its connection.
        server.gate.open.add_permits(1);
        first.reply().await;
        until("there is a place", async || {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            let head = "GET /address HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
            let mut told = String::new();
            // A rejected client may find its connection reset while it still sends.
            let asked = async {
                stream.write_all(head.as_bytes()).await?;
                stream.read_to_string(&mut told).await
            };
            in_time("an answer comes", asked).await.is_ok() && told.starts_with("HTTP/1.1 200 ")
        })
        .await;
        server.gate.open.add_permits(1);
        server.until_inside(0).await;
        server.stop().await;
    }
}

#[tokio::test]
async fn shutdown_waits_for_requests_in_progress_and_closes_idle_connections() {
    let server = start(HttpConfig::default()).await;
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    idle.write_all(b"GET /address HTTP/1.1\r\nHost: test\r\n\r\n")
        .await
        .unwrap();
    let mut first = [0; 1];
    in_time("the answer begins", idle.read_exact(&mut first))
        .await
        .unwrap();
    let call = server.wait().await;
    server.until_inside(1).await;

    server.stop.cancel();
    let mut rest = Vec::new();
    in_time("the idle connection is closed", idle.read_to_end(&mut rest))
        .await
        .unwrap();
    assert!(
        TcpStream::connect(server.address).await.is_err(),
        "nobody is accepted any more"
    );
    assert!(!server.task.is_finished());
    server.gate.open.add_permits(1);
    assert_eq!(call.reply().await.body, "through");
    server.stop().await;
}

#[tokio::test]
async fn the_end_does_not_wait_for_ever() {
    let config = HttpConfig {
        drain_timeout: Duration::from_millis(50),
        ..HttpConfig::default()
    };
    let server = start(config).await;
    let _call = server.wait().await;
    server.until_inside(1).await;
    let inside = server.gate.inside.clone();
    server.stop().await;
    assert_eq!(
        inside.load(Ordering::SeqCst),
        0,
        "every handler is gone when the loop has ended"
    );
}

#[tokio::test]
async fn forwarding_headers_do_not_change_the_callers_address() {
    let server = start(HttpConfig::default()).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let own = stream.local_addr().unwrap();
    let head = "GET /address HTTP/1.1\r\nHost: test\r\nX-Forwarded-For: 10.0.0.1\r\nForwarded: for=10.0.0.1\r\n\
                Connection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(
        Call::of_another_server(stream).reply().await.body,
        own.to_string()
    );
    server.stop().await;
}

#[tokio::test]
async fn a_connection_serves_many_requests() {
    let server = start(HttpConfig::default()).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    // Two requests at once: the second waits in the buffer for the answer to the first.
    let one = "GET /address HTTP/1.1\r\nHost: test\r\n\r\n";
    let last = "GET /address HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    stream
        .write_all(format!("{one}{one}{last}").as_bytes())
        .await
        .unwrap();
    let mut answers = String::new();
    in_time("the answers come", stream.read_to_string(&mut answers))
        .await
        .unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 3, "{answers}");
    server.stop().await;
}
