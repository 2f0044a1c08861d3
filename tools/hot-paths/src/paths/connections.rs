//! Whole requests through a connection: hyper reads them and writes the responses, as on a socket. The
//! connection is in memory, so copying bytes through it is counted in place of the kernel.

use futures_util::future::join_all;
use lock_api::http::HttpConfig;
use lock_api::http::bench_support::serve_connection;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::requests::{Server, ZNODE_URL, counted_requests_by, peer};

/// Size of the pipe: more than a request or a response, so that a write never waits.
const PIPE_BYTES: usize = 64 * 1024;

/// Start of a successful response.
const STATUS_OK: &[u8] = b"HTTP/1.1 200 OK\r\n";

/// Text before the holder in a grant.
const HOLDER_FIELD: &[u8] = br#""holder":""#;

/// Clients that send their requests at the same time.
pub const MANY_CLIENTS: u64 = 64;

/// An open connection, the session of its client, and the response last read from it.
struct HttpConnection {
    stream: DuplexStream,
    answer: Vec<u8>,
    session: String,
}

/// A connection, and the node that serves it.
struct Client {
    connection: HttpConnection,
    _server: Server,
}

impl Client {
    async fn open(server: Server) -> Self {
        Self {
            connection: HttpConnection::open(&server, server.session.clone()),
            _server: server,
        }
    }
}

impl HttpConnection {
    fn open(server: &Server, session: String) -> Self {
        let (stream, served) = tokio::io::duplex(PIPE_BYTES);
        let (front, node) = (server.front.clone(), server.node.clone());
        tokio::spawn(async move {
            let config = HttpConfig::default();
            let ended = serve_connection(served, peer(), front, node, &config).await;
            ended.expect("the connection does not break");
        });
        Self {
            stream,
            answer: vec![0; PIPE_BYTES],
            session,
        }
    }

    /// Sends a request in one piece and reads its response, which arrives in one piece, too, and ends with
    /// its document. Returns the length of the response.
    async fn call(&mut self, request: &[u8]) -> usize {
        self.stream
            .write_all(request)
            .await
            .expect("the connection is open");
        let length = self
            .stream
            .read(&mut self.answer)
            .await
            .expect("the connection is open");
        let answer = &self.answer[..length];
        assert!(
            answer.starts_with(STATUS_OK) && answer.ends_with(b"}"),
            "{}",
            String::from_utf8_lossy(answer)
        );
        length
    }

    /// Acquires the lock and releases it.
    async fn lock_cycle(&mut self, name: &str) {
        let lock = format!("/v1/locks/{name}");
        let acquire = format!(r#"{{"session":"{}","wait_ms":10000}}"#, self.session);
        let length = self
            .call(request("POST", &format!("{lock}/acquire"), &acquire).as_bytes())
            .await;
        let granted = &self.answer[..length];
        let begin = granted
            .windows(HOLDER_FIELD.len())
            .position(|text| text == HOLDER_FIELD);
        let holder = &granted[begin.expect("the grant names the holder") + HOLDER_FIELD.len()..];
        let end = holder
            .iter()
            .position(|byte| *byte == b'"')
            .expect("the holder's name ends with a quote");
        let holder = str::from_utf8(&holder[..end]).expect("the holder's name is text");
        let release = format!(r#"{{"session":"{}","holder":"{holder}"}}"#, self.session);
        self.call(request("POST", &format!("{lock}/release"), &release).as_bytes())
            .await;
    }
}

/// Formats a request as clients send it.
fn request(method: &str, address: &str, body: &str) -> String {
    let length = body.len();
    match method {
        "GET" => format!("GET {address} HTTP/1.1\r\nHost: localhost:7400\r\n\r\n"),
        _ => format!(
            "{method} {address} HTTP/1.1\r\nHost: localhost:7400\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        ),
    }
}

pub fn lock_cycle(operations: u64) {
    counted_requests_by(operations, Client::open, async |mut client: Client, n| {
        client.connection.lock_cycle(&format!("job-{}", n % 10)).await;
        client
    });
}

/// Lock cycles of many clients, each with a session, a connection and a lock of its own.
pub fn many_lock_cycles(operations: u64) {
    let rounds = operations / MANY_CLIENTS;
    let open = async |mut server: Server| {
        let mut connections = Vec::new();
        for _ in 0..MANY_CLIENTS {
            let session = server.open_session().await;
            connections.push(HttpConnection::open(&server, session));
        }
        (connections, server)
    };
    counted_requests_by(rounds, open, async |(mut connections, server), _| {
        let cycles = connections.iter_mut().enumerate();
        join_all(cycles.map(async |(n, connection)| connection.lock_cycle(&format!("job-{n}")).await)).await;
        (connections, server)
    });
}

pub fn heartbeat(operations: u64) {
    counted_requests_by(operations, Client::open, async |mut client: Client, _| {
        let address = format!("/v1/sessions/{}/heartbeat", client.connection.session);
        let request = request("POST", &address, "{}");
        client.connection.call(request.as_bytes()).await;
        client
    });
}

pub fn get(operations: u64) {
    counted_requests_by(operations, Client::open, async |mut client: Client, _| {
        client
            .connection
            .call(request("GET", ZNODE_URL, "").as_bytes())
            .await;
        client
    });
}
