//! A client that says what it is told to, and shows what it is answered. It keeps no session alive by itself.

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

/// Longer than any test.
pub const LONG: Duration = Duration::from_secs(40);

/// A connection of which nothing is known yet.
pub struct Stream {
    stream: transport_security::Stream,
    inbox: BytesMut,
}

/// A connection with a session.
pub struct Client {
    pub stream: Stream,
    pub session: ConnectResponse,
    next_xid: i32,
    /// The largest zxid that was answered.
    pub seen: i64,
}

/// What came.
#[derive(Debug, Clone, PartialEq)]
pub enum Came {
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

    /// The next frame; none if the server has closed the connection.
    pub async fn frame(&mut self) -> Option<Bytes> {
        in_time("the server says something", async {
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

    /// All that comes until the server closes the connection.
    pub async fn rest(&mut self) -> Vec<u8> {
        in_time("the server hangs up", async {
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

    /// The same where the server may hang up at any time.
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

/// What a client asks for that has no session.
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
    /// With a session of its own that outlives the test.
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

    /// What it takes to go on with the session elsewhere.
    pub fn ticket(&self) -> ConnectRequest {
        ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: self.seen,
            timeout_ms: self.session.timeout_ms,
            session_id: self.session.session_id,
            password: self.session.password.clone(),
            read_only: Some(false),
        }
    }

    /// Goes on with a session; none if the server says that there is none any more.
    pub async fn resume(address: SocketAddr, ticket: &ConnectRequest) -> Option<Self> {
        Self::resume_on(Stream::open(address).await, ticket).await
    }

    /// The same on a connection of its own making.
    pub async fn resume_on(mut stream: Stream, ticket: &ConnectRequest) -> Option<Self> {
        let session = stream.connect(ticket).await.expect("the server answers");
        if session.session_id == 0 {
            assert_eq!(session.timeout_ms, 0);
            assert_eq!(stream.frame().await, None, "the server hangs up");
            return None;
        }
        Some(Self::of(stream, session, ticket.last_zxid_seen))
    }

    /// Sends without waiting; gives the number.
    pub async fn send(&mut self, request: &Request) -> i32 {
        let mut out = BytesMut::new();
        let xid = self.add(request, &mut out);
        self.stream.write(&out).await;
        xid
    }

    /// Sends all in one packet; gives the numbers.
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

    /// The next thing that comes, where `request` is the one that a reply would be to.
    pub async fn receive(&mut self, request: &Request) -> Came {
        let Some(body) = self.stream.frame().await else {
            return Came::End;
        };
        let mut from = Reader::new(body);
        let header = ReplyHeader::decode(&mut from).unwrap();
        let ReplyHeader { xid, zxid, err } = header;
        if xid == xid::NOTIFICATION {
            let event = Notification::decode(&mut from).unwrap();
            return Came::Notification { zxid, event };
        }
        let outcome = match err {
            ErrorCode::OK => Ok(Reply::decode(request, &mut from).unwrap()),
            code => Err(code),
        };
        from.end().unwrap();
        self.seen = self.seen.max(zxid);
        Came::Reply { xid, zxid, outcome }
    }

    /// Asks, and gives the outcome, with the notifications before it.
    pub async fn call_and_hear(&mut self, request: &Request) -> (Outcome, Vec<Notification>) {
        let sent = self.send(request).await;
        let mut heard = Vec::new();
        loop {
            match self.receive(request).await {
                Came::Reply { xid, outcome, .. } => {
                    assert_eq!(xid, sent);
                    return (outcome, heard);
                }
                Came::Notification { event, .. } => heard.push(event),
                Came::End => panic!("the connection ended"),
            }
        }
    }

    /// Asks, where nothing is to be heard.
    pub async fn call(&mut self, request: &Request) -> Outcome {
        let (outcome, heard) = self.call_and_hear(request).await;
        assert_eq!(heard, []);
        outcome
    }

    /// The next notification.
    pub async fn hear(&mut self) -> Notification {
        match self.receive(&Request::Ping).await {
            Came::Notification { event, .. } => event,
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

/// Of ZooKeeper's flags.
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
