//! Raw test client that sends arbitrary requests and returns all replies. It does not renew its session by
//! itself.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use transport_security::ClientTls;
use zk_wire::{
    AclEntry, ConnectRequest, ConnectResponse, CreateCall, ErrorCode, Notification, Outcome, Reader, Reply,
    ReplyHeader, Request, frame, xid,
};

use crate::cluster::in_time;

/// Session timeout longer than any test.
pub const LONG: Duration = Duration::from_secs(40);

/// Connection before its session is established.
pub struct Stream {
    stream: transport_security::Stream,
    inbox: BytesMut,
}

/// Connection with a session.
pub struct Client {
    pub stream: Stream,
    pub session: ConnectResponse,
    next_xid: i32,
    /// Greatest zxid of a reply.
    pub seen: i64,
}

/// Frame from the server.
#[derive(Debug, Clone, PartialEq)]
pub enum Received {
    Reply {
        xid: i32,
        zxid: i64,
        outcome: Outcome,
    },
    Notification {
        zxid: i64,
        event: Notification,
    },
    /// The server has closed the connection.
    End,
}

impl Stream {
    pub async fn open(address: SocketAddr) -> Self {
        Self {
            stream: TcpStream::connect(address).await.unwrap().into(),
            inbox: BytesMut::new(),
        }
    }

    pub async fn open_secured(address: SocketAddr, tls: &ClientTls) -> Self {
        let socket = TcpStream::connect(address).await.unwrap();
        Self {
            stream: tls.connect("127.0.0.1", socket).await.unwrap(),
            inbox: BytesMut::new(),
        }
    }

    pub async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Returns the next frame; `None` if the server has closed the connection.
    pub async fn frame(&mut self) -> Option<Bytes> {
        in_time("the server sends a frame", async {
            loop {
                if let Some(body) = frame::take(&mut self.inbox, 2 * frame::DEFAULT_MAX_LENGTH).unwrap() {
                    return Some(body);
                }
                match self.stream.read_buf(&mut self.inbox).await {
                    Ok(0) | Err(_) => return None,
                    Ok(_) => {}
                }
            }
        })
        .await
    }

    /// Returns all bytes until the server closes the connection.
    pub async fn rest(&mut self) -> Vec<u8> {
        in_time("the server closes the connection", async {
            while self
                .stream
                .read_buf(&mut self.inbox)
                .await
                .is_ok_and(|read| read > 0)
            {}
        })
        .await;
        self.inbox.to_vec()
    }

    /// Sends a connect request to a server that may close the connection at any time.
    pub async fn try_connect(&mut self, request: &ConnectRequest) -> Option<ConnectResponse> {
        let mut out = BytesMut::new();
        request.write_frame(&mut out);
        self.stream.write_all(&out).await.ok()?;
        self.stream.flush().await.ok()?;
        let body = self.frame().await?;
        Some(ConnectResponse::decode(&mut Reader::new(body)).unwrap())
    }

    pub async fn connect(&mut self, request: &ConnectRequest) -> Option<ConnectResponse> {
        let mut out = BytesMut::new();
        request.write_frame(&mut out);
        self.write(&out).await;
        let body = self.frame().await?;
        Some(ConnectResponse::decode(&mut Reader::new(body)).unwrap())
    }
}

/// Returns the connect request of a client without a session.
pub fn new_session(timeout: Duration) -> ConnectRequest {
    ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0,
        timeout_ms: timeout.as_millis() as i32,
        session_id: 0,
        password: Some(Bytes::from_static(&[0; 16])),
        read_only: Some(false),
    }
}

impl Client {
    /// Connects with a new session that outlives the test.
    pub async fn connect(address: SocketAddr) -> Self {
        Self::connect_for(address, LONG).await
    }

    pub async fn connect_for(address: SocketAddr, timeout: Duration) -> Self {
        Self::with_session(Stream::open(address).await, timeout).await
    }

    pub async fn connect_secured(address: SocketAddr, tls: &ClientTls) -> Self {
        Self::with_session(Stream::open_secured(address, tls).await, LONG).await
    }

    pub async fn with_session(mut stream: Stream, timeout: Duration) -> Self {
        let session = stream.connect(&new_session(timeout)).await.unwrap();
        assert_ne!(session.session_id, 0, "the session is granted");
        Self::of(stream, session, 0)
    }

    fn of(stream: Stream, session: ConnectResponse, seen: i64) -> Self {
        Self {
            stream,
            session,
            next_xid: 1,
            seen,
        }
    }

    /// Returns the connect request that resumes the session at another node.
    pub fn resume_request(&self) -> ConnectRequest {
        ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: self.seen,
            timeout_ms: self.session.timeout_ms,
            session_id: self.session.session_id,
            password: self.session.password.clone(),
            read_only: Some(false),
        }
    }

    /// Resumes a session; `None` if the server reports that it has expired.
    pub async fn resume(address: SocketAddr, request: &ConnectRequest) -> Option<Self> {
        Self::resume_on(Stream::open(address).await, request).await
    }

    /// Resumes a session on an open connection.
    pub async fn resume_on(mut stream: Stream, request: &ConnectRequest) -> Option<Self> {
        let session = stream.connect(request).await.expect("the server responds");
        if session.session_id == 0 {
            assert_eq!(session.timeout_ms, 0);
            assert_eq!(stream.frame().await, None, "the server closes the connection");
            return None;
        }
        Some(Self::of(stream, session, request.last_zxid_seen))
    }

    /// Sends a request without waiting; returns its xid.
    pub async fn send(&mut self, request: &Request) -> i32 {
        let mut out = BytesMut::new();
        let xid = self.add(request, &mut out);
        self.stream.write(&out).await;
        xid
    }

    /// Sends all requests in one packet; returns their xids.
    pub async fn send_all(&mut self, requests: &[Request]) -> Vec<i32> {
        let mut out = BytesMut::new();
        let xids = requests
            .iter()
            .map(|request| self.add(request, &mut out))
            .collect();
        self.stream.write(&out).await;
        xids
    }

    fn add(&mut self, request: &Request, out: &mut BytesMut) -> i32 {
        let xid = request.fixed_xid().unwrap_or_else(|| {
            self.next_xid += 1;
            self.next_xid - 1
        });
        request.write_frame(xid, out);
        xid
    }

    /// Receives the next frame. A reply is decoded as one to `request`.
    pub async fn receive(&mut self, request: &Request) -> Received {
        let Some(body) = self.stream.frame().await else {
            return Received::End;
        };
        let mut from = Reader::new(body);
        let header = ReplyHeader::decode(&mut from).unwrap();
        let ReplyHeader { xid, zxid, err } = header;
        if xid == xid::NOTIFICATION {
            let event = Notification::decode(&mut from).unwrap();
            return Received::Notification { zxid, event };
        }
        let outcome = match err {
            ErrorCode::OK => Ok(Reply::decode(request, &mut from).unwrap()),
            code => Err(code),
        };
        from.end().unwrap();
        self.seen = self.seen.max(zxid);
        Received::Reply { xid, zxid, outcome }
    }

    /// Sends a request; returns its outcome and the notifications before the reply.
    pub async fn call_with_notifications(&mut self, request: &Request) -> (Outcome, Vec<Notification>) {
        let sent = self.send(request).await;
        let mut notifications = Vec::new();
        loop {
            match self.receive(request).await {
                Received::Reply { xid, outcome, .. } => {
                    assert_eq!(xid, sent);
                    return (outcome, notifications);
                }
                Received::Notification { event, .. } => notifications.push(event),
                Received::End => panic!("the connection ended"),
            }
        }
    }

    /// Sends a request and expects no notifications before the reply.
    pub async fn call(&mut self, request: &Request) -> Outcome {
        let (outcome, notifications) = self.call_with_notifications(request).await;
        assert_eq!(notifications, []);
        outcome
    }

    /// Receives the next frame, which has to be a notification.
    pub async fn notification(&mut self) -> Notification {
        match self.receive(&Request::Ping).await {
            Received::Notification { event, .. } => event,
            other => panic!("{other:?}"),
        }
    }

    pub async fn create(&mut self, path: &str, flags: i32) -> String {
        match self.call(&create(path, flags)).await {
            Ok(Reply::Path(path)) => path,
            other => panic!("{other:?}"),
        }
    }

    pub async fn data(&mut self, path: &str) -> Result<String, ErrorCode> {
        match self.call(&get(path, false)).await? {
            Reply::Data(data, _) => Ok(String::from_utf8(data.unwrap().to_vec()).unwrap()),
            other => panic!("{other:?}"),
        }
    }
}

/// ZooKeeper's flags of create requests.
pub const PERSISTENT: i32 = 0;
pub const EPHEMERAL: i32 = 1;
pub const SEQUENTIAL: i32 = 2;

pub fn create(path: &str, flags: i32) -> Request {
    Request::Create {
        call: CreateCall::Create,
        path: path.to_owned(),
        data: Some(Bytes::from_static(b"new")),
        acl: Some(vec![AclEntry {
            perms: 31,
            scheme: "world".to_owned(),
            id: "anyone".to_owned(),
        }]),
        flags,
    }
}

pub fn set(path: &str, data: &str) -> Request {
    Request::SetData {
        path: path.to_owned(),
        data: Some(Bytes::copy_from_slice(data.as_bytes())),
        version: -1,
    }
}

pub fn get(path: &str, watch: bool) -> Request {
    Request::GetData {
        path: path.to_owned(),
        watch,
    }
}

pub fn exists(path: &str, watch: bool) -> Request {
    Request::Exists {
        path: path.to_owned(),
        watch,
    }
}

pub fn delete(path: &str) -> Request {
    Request::Delete {
        path: path.to_owned(),
        version: -1,
    }
}

pub fn sync() -> Request {
    Request::Sync { path: "/".to_owned() }
}

pub fn event(kind: i32, path: &str) -> Notification {
    Notification {
        kind,
        state: zk_wire::keeper_state::SYNC_CONNECTED,
        path: path.to_owned(),
    }
}
