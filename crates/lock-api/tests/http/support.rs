//! A server to call and a caller that can misbehave. Neither knows the contract.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use lock_api::Locks;
use lock_api::http::{HttpConfig, OperatorToken, router, serve};
use lock_node::{MemberAddress, Node, NodeConfig};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::contract::{self, SentRequest};

/// Timeout of each step of a test.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Interval between two checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A node with one member and its HTTP server.
pub struct Server {
    pub address: SocketAddr,
    pub node: Node,
    locks: Locks,
    stop: CancellationToken,
    serving: JoinHandle<()>,
    /// Text of this node's operator token.
    pub operator: String,
    // Directory of the node, removed after it has stopped.
    directory: TempDir,
}

impl Server {
    pub async fn start() -> Self {
        Self::start_with(HttpConfig::default()).await
    }

    pub async fn start_with(config: HttpConfig) -> Self {
        Self::start_node(config, |_| ()).await
    }

    pub async fn start_node(config: HttpConfig, adjust: impl FnOnce(&mut NodeConfig)) -> Self {
        let server = Self::begin(config, adjust).await;
        until("the node is ready", async || {
            server.get("/readyz").await.status == 200
        })
        .await;
        server
    }

    /// Starts a server that may never become ready.
    pub async fn start_unready(config: HttpConfig, adjust: impl FnOnce(&mut NodeConfig)) -> Self {
        Self::begin(config, adjust).await
    }

    /// Starts one of two members, so that the cluster has no leader.
    pub async fn start_alone() -> Self {
        Self::begin(HttpConfig::default(), |node| {
            let missing = MemberAddress {
                peer: "127.0.0.1:1".into(),
                http: "127.0.0.1:1".into(),
            };
            node.raft.members.insert(2, missing);
            node.raft.propose_timeout = Duration::from_millis(200);
        })
        .await
    }

    /// Starts a server in a secured cluster; returns the first administrator's token as well.
    pub async fn start_secured() -> (Self, String) {
        let server = Self::start().await;
        let secured = server.as_operator("POST", "/v1/access/secure", json!({})).await;
        let admin = secured.expect(201)["token"].as_str().unwrap().to_owned();
        (server, admin)
    }

    async fn begin(mut config: HttpConfig, adjust: impl FnOnce(&mut NodeConfig)) -> Self {
        let (known, operator) = OperatorToken::draw();
        config.operator = Some(known);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        contract::forget(address);
        let directory = tempfile::tempdir().unwrap();
        // There is no other member that would connect to this address.
        let member = MemberAddress {
            peer: "127.0.0.1:0".into(),
            http: address.to_string(),
        };
        let mut node = NodeConfig::new(1, "test", [(1, member)].into(), directory.path());
        node.raft.peer_listen = Some("127.0.0.1:0".parse().unwrap());
        node.raft.timing.heartbeat = Duration::from_millis(20);
        node.raft.timing.election_min = Duration::from_millis(60);
        node.raft.timing.election_max = Duration::from_millis(120);
        node.sessions.min = Duration::from_millis(300);
        adjust(&mut node);
        let node = Node::start(node).await.unwrap();
        let locks = Locks::new(node.clone());
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let serving = tokio::spawn(serve(
            listener,
            router(node.clone(), locks.clone(), config.clone()),
            config,
            None,
            Some(node.clone()),
            stopped,
        ));
        Self {
            address,
            node,
            locks,
            stop,
            serving,
            operator,
            directory,
        }
    }

    /// Stops the server. Every test ends with it, so that a hanging shutdown is detected.
    pub async fn stop(self) {
        self.stop.cancel();
        in_time("the lock calls end", self.locks.close()).await;
        in_time("the node stops", self.node.stop()).await;
        in_time("the server stops", self.serving).await.unwrap();
        self.directory.close().unwrap();
    }

    pub async fn call(&self, method: &str, path: &str, body: Option<&str>) -> Reply {
        Call::send(self.address, method, path, body).await.reply().await
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.call("GET", path, None).await
    }

    pub async fn delete(&self, path: &str) -> Reply {
        self.call("DELETE", path, None).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Reply {
        self.call("PUT", path, Some(&body.to_string())).await
    }

    pub async fn patch(&self, path: &str, body: Value) -> Reply {
        self.call("PATCH", path, Some(&body.to_string())).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Reply {
        self.call("POST", path, Some(&body.to_string())).await
    }

    /// Makes a call with this token. `Null` is no body.
    pub async fn as_token(&self, token: &str, method: &str, path: &str, body: Value) -> Reply {
        let body = (!body.is_null()).then(|| body.to_string());
        let call = Call::send_as(self.address, Some(token), method, path, body.as_deref());
        call.await.reply().await
    }

    /// Makes a call with the operator's token.
    pub async fn as_operator(&self, method: &str, path: &str, body: Value) -> Reply {
        self.as_token(&self.operator, method, path, body).await
    }

    /// Creates a role with these grants, and a token for it.
    pub async fn token_for(&self, admin: &str, role: &str, grants: Value) -> String {
        let path = format!("/v1/roles/{role}");
        let set = self
            .as_token(admin, "PUT", &path, json!({"grants": grants}))
            .await;
        set.expect(200);
        let made = self
            .as_token(admin, "POST", "/v1/tokens", json!({"role": role}))
            .await;
        made.expect(201)["token"].as_str().unwrap().to_owned()
    }

    /// Opens a session with this token.
    pub async fn session_of(&self, token: &str) -> String {
        let body = json!({"ttl_ms": 120_000});
        let opened = self.as_token(token, "POST", "/v1/sessions", body).await;
        opened.expect(201)["session"].as_str().unwrap().to_owned()
    }

    /// Makes a call from another address of this machine.
    pub async fn call_from(&self, host: Ipv4Addr, method: &str, path: &str, body: Option<Value>) -> Reply {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((host, 0).into()).unwrap();
        let stream = socket.connect(self.address).await.unwrap();
        let body = body.map(|body| body.to_string());
        let asked = SentRequest::new(self.address, method, path, body.as_deref());
        Call::send_on(stream, asked, None).await.reply().await
    }

    /// Makes a call with further headers: lines, each with its end. `Null` is no body.
    pub async fn call_with(&self, headers: &str, method: &str, path: &str, body: Value) -> Reply {
        let body = (!body.is_null()).then(|| body.to_string());
        let asked = SentRequest::new(self.address, method, path, body.as_deref());
        let text = body.unwrap_or_default();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n{text}",
            text.len()
        );
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let asked = Some(asked);
        Call { stream, asked }.reply().await
    }

    /// Opens a session that lives for as long as a test.
    pub async fn session(&self) -> String {
        let opened = self
            .post("/v1/sessions", json!({"ttl_ms": 120_000}))
            .await
            .expect(201);
        opened["session"].as_str().unwrap().to_owned()
    }
}

/// A request in progress, on a connection of its own. Dropping it disconnects the caller.
pub struct Call {
    pub stream: TcpStream,
    /// Operation whose schema the answer must match, unless it is no answer of the API.
    asked: Option<SentRequest>,
}

impl Call {
    pub async fn send(address: SocketAddr, method: &str, path: &str, body: Option<&str>) -> Self {
        Self::send_as(address, None, method, path, body).await
    }

    /// Sends a request with a token.
    pub async fn send_as(
        address: SocketAddr,
        token: Option<&str>,
        method: &str,
        path: &str,
        body: Option<&str>,
    ) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        Self::send_on(stream, SentRequest::new(address, method, path, body), token).await
    }

    async fn send_on(mut stream: TcpStream, asked: SentRequest, token: Option<&str>) -> Self {
        let body = asked.body.as_deref().unwrap_or_default();
        let head = head(&asked.method, &asked.address, token, body.len());
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body.as_bytes()).await.unwrap();
        Self {
            stream,
            asked: Some(asked),
        }
    }

    /// Sends a head that announces a body, and no body.
    pub async fn send_head(address: SocketAddr, method: &str, path: &str) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = head(method, path, None, 10);
        stream.write_all(head.as_bytes()).await.unwrap();
        Self {
            stream,
            asked: Some(SentRequest::new(address, method, path, None)),
        }
    }

    /// Wraps a request to a server without the API.
    pub fn of_another_server(stream: TcpStream) -> Self {
        Self { stream, asked: None }
    }

    pub async fn reply(mut self) -> Reply {
        let mut bytes = Vec::new();
        in_time("the answer comes", self.stream.read_to_end(&mut bytes))
            .await
            .unwrap();
        let reply = Reply::parse(&bytes);
        if let Some(asked) = &self.asked {
            contract::hold(asked, &reply);
        }
        reply
    }
}

fn head(method: &str, path: &str, token: Option<&str>, length: usize) -> String {
    let shown = token.map_or(String::new(), |token| {
        format!("Authorization: Bearer {token}\r\n")
    });
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{shown}Content-Length: {length}\r\n\r\n"
    )
}

/// A parsed answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Reply {
    pub fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let (head, body) = text
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("no answer: {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self {
            status,
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }

    /// Returns the value of a header, in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the document of an answer that must have this status.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        if status == 204 {
            assert_eq!(self.body, "");
            return Value::Null;
        }
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        self.json()
    }

    /// Returns the document of an error that must have this status and code.
    #[track_caller]
    pub fn problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json"),
            "{self:?}"
        );
        let document = self.json();
        assert_eq!(document["code"], code, "{self:?}");
        assert_eq!(document["status"], status, "{self:?}");
        document
    }
}

/// Waits for a future that must complete in time.
pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(TIMEOUT, future).await {
        Ok(value) => value,
        Err(_) => panic!("not in time: {what}"),
    }
}

/// Waits until a condition holds.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    in_time(what, async {
        while !condition().await {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    })
    .await;
}
