//! Client of ZooKeeper that shares only the record types with the migration tool: it fills the source, and
//! reads both sides.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;
use zk_wire::{
    AclEntry, ConnectRequest, ConnectResponse, ErrorCode, Outcome, Reader, Reply, ReplyHeader, Request, Stat,
    frame, xid,
};

/// Session timeout, longer than any step of a test on a busy machine.
const TIMEOUT_MS: i32 = 60_000;

/// Number of requests in flight.
const WINDOW: usize = 500;

/// Credentials of the super user on both sides.
pub const SUPER: &str = "super:secret";

/// Client with a session.
pub struct Client {
    stream: TcpStream,
    inbox: BytesMut,
    next_xid: i32,
    /// Session id.
    pub session: i64,
    password: Bytes,
}

impl Client {
    /// Opens a session as the super user at a running server.
    pub async fn open(server: &str) -> Self {
        Self::try_open(server).await.expect("the server accepts clients")
    }

    /// Opens a session at a server that may not be running.
    pub async fn try_open(server: &str) -> anyhow::Result<Self> {
        Self::connect(server, 0, Bytes::from_static(&[0; 16])).await
    }

    async fn connect(server: &str, session: i64, password: Bytes) -> anyhow::Result<Self> {
        let mut client = Self {
            stream: TcpStream::connect(server).await?,
            inbox: BytesMut::new(),
            next_xid: 1,
            session,
            password: password.clone(),
        };
        client.stream.set_nodelay(true)?;
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: TIMEOUT_MS,
            session_id: session,
            password: Some(password),
            read_only: Some(false),
        };
        let mut out = BytesMut::new();
        request.write_frame(&mut out);
        client.stream.write_all(&out).await?;
        let answer = ConnectResponse::decode(&mut Reader::new(client.frame().await?))?;
        anyhow::ensure!(answer.session_id != 0, "no session");
        (client.session, client.password) = (answer.session_id, answer.password.unwrap_or_default());
        let auth = Request::Auth {
            kind: 0,
            scheme: "digest".to_owned(),
            auth: Some(Bytes::from_static(SUPER.as_bytes())),
        };
        let mut out = BytesMut::new();
        auth.write_frame(xid::AUTH, &mut out);
        client.stream.write_all(&out).await?;
        let header = ReplyHeader::decode(&mut Reader::new(client.frame().await?))?;
        anyhow::ensure!(
            header.err == ErrorCode::OK,
            "authentication failed: {}",
            header.err
        );
        Ok(client)
    }

    /// Sends requests, many at a time.
    pub async fn call_all(&mut self, requests: &[Request]) -> anyhow::Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        for some in requests.chunks(WINDOW) {
            let mut out = BytesMut::new();
            let first = self.next_xid;
            for request in some {
                request.write_frame(self.next_xid, &mut out);
                self.next_xid += 1;
            }
            self.stream.write_all(&out).await?;
            for (xid, request) in (first..).zip(some) {
                let mut from = Reader::new(self.frame().await?);
                let header = ReplyHeader::decode(&mut from)?;
                anyhow::ensure!(header.xid == xid, "{xid} was answered by {}", header.xid);
                outcomes.push(match header.err {
                    ErrorCode::OK => Ok(Reply::decode(request, &mut from)?),
                    code => Err(code),
                });
            }
        }
        Ok(outcomes)
    }

    /// Sends one request.
    pub async fn call(&mut self, request: Request) -> anyhow::Result<Outcome> {
        Ok(self.call_all(&[request]).await?.remove(0))
    }

    /// Keeps the session alive at any of these servers that serves; a new leader needs a new connection.
    pub async fn stay_connected(&mut self, servers: &[String]) {
        let deadline = Instant::now() + Duration::from_millis(TIMEOUT_MS as u64);
        for server in servers.iter().cycle() {
            let (path, watch) = ("/".to_owned(), false);
            if self
                .call(Request::Exists { path, watch })
                .await
                .is_ok_and(|outcome| outcome.is_ok())
            {
                return;
            }
            assert!(Instant::now() < deadline, "no server resumes the session");
            if let Ok(client) = Self::connect(server, self.session, self.password.clone()).await {
                *self = client;
            }
        }
    }

    async fn frame(&mut self) -> anyhow::Result<Bytes> {
        loop {
            if let Some(body) = frame::take(&mut self.inbox, 1 << 28)? {
                return Ok(body);
            }
            let read = self.stream.read_buf(&mut self.inbox);
            let read = tokio::time::timeout(Duration::from_millis(TIMEOUT_MS as u64), read).await??;
            anyhow::ensure!(read > 0, "the server closed the connection");
        }
    }

    /// Reads all persistent znodes, except the systems' own.
    pub async fn tree(&mut self) -> BTreeMap<String, ReadZnode> {
        let mut tree = BTreeMap::new();
        let mut level = vec!["/".to_owned()];
        while !level.is_empty() {
            let watch = false;
            let requests: Vec<Request> = level
                .iter()
                .flat_map(|path| {
                    let path = || path.clone();
                    [
                        Request::GetData { path: path(), watch },
                        Request::GetAcl { path: path() },
                        Request::GetChildren { path: path(), watch },
                    ]
                })
                .collect();
            let mut outcomes = self.call_all(&requests).await.unwrap().into_iter();
            let mut next = Vec::new();
            for path in level {
                let (data, stat) = match outcomes.next().unwrap() {
                    Ok(Reply::Data(data, stat)) => (data.unwrap_or_default(), stat),
                    other => panic!("{path}: {other:?}"),
                };
                let acl = match outcomes.next().unwrap() {
                    Ok(Reply::Acl(acl, _)) => acl,
                    other => panic!("{path}: {other:?}"),
                };
                let children = match outcomes.next().unwrap() {
                    Ok(Reply::Names(names)) => names,
                    other => panic!("{path}: {other:?}"),
                };
                let parent = path.trim_end_matches('/');
                let children = children.iter().map(|name| format!("{parent}/{name}"));
                next.extend(children.filter(|path| path != "/zookeeper"));
                // Ephemeral znodes are not migrated.
                if stat.ephemeral_owner <= 0 {
                    tree.insert(path, ReadZnode::new(data, stat, acl));
                }
            }
            level = next;
        }
        tree
    }
}

/// Attributes of a znode that must be equal on both sides.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadZnode {
    pub data: Bytes,
    pub acl: Vec<AclEntry>,
    pub version: i32,
    pub aversion: i32,
    pub times: (i64, i64),
    pub owner: i64,
    /// Number of children ever created: deletions change `cversion` as well.
    pub created: i32,
}

impl ReadZnode {
    fn new(data: Bytes, stat: Stat, acl: Vec<AclEntry>) -> Self {
        Self {
            data,
            acl,
            version: stat.version,
            aversion: stat.aversion,
            times: (stat.ctime, stat.mtime),
            owner: stat.ephemeral_owner,
            created: (stat.cversion + stat.num_children) / 2,
        }
    }
}
