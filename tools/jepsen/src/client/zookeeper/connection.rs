//! One connection to one server, with a session of its own: sends and receives frames.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use zk_wire::{
    ConnectRequest, ConnectResponse, ErrorCode, Notification, Reader, Reply, ReplyHeader, Request, frame, xid,
};

/// Time limit of connecting, and of each response.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Largest frame that is read; far more than any response of these workloads.
const LONGEST_FRAME: usize = 4 << 20;

/// Connection with its session.
pub struct Connection {
    stream: TcpStream,
    received: BytesMut,
    next_xid: i32,
    timeout: Duration,
    notifications: Vec<Notification>,
}

/// The connection is unusable, and the outcome of a request in flight is unknown.
#[derive(Debug)]
pub struct ConnectionLost(pub String);

impl From<std::io::Error> for ConnectionLost {
    fn from(error: std::io::Error) -> Self {
        Self(error.kind().to_string())
    }
}

impl Connection {
    /// Connects and opens a session.
    pub async fn open(server: SocketAddr, timeout: Duration) -> Result<Self, ConnectionLost> {
        tokio::time::timeout(TIMEOUT, Self::open_unbounded(server, timeout))
            .await
            .unwrap_or_else(|_| Err(ConnectionLost("connecting: no answer in time".to_owned())))
    }

    async fn open_unbounded(server: SocketAddr, timeout: Duration) -> Result<Self, ConnectionLost> {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        let mut connection = Self {
            stream,
            received: BytesMut::new(),
            next_xid: 1,
            timeout,
            notifications: Vec::new(),
        };
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: i32::try_from(timeout.as_millis()).expect("sessions are short"),
            session_id: 0,
            password: Some(Bytes::from_static(&[0; 16])),
            read_only: Some(false),
        };
        let mut bytes = BytesMut::new();
        request.write_frame(&mut bytes);
        connection.stream.write_all(&bytes).await?;
        let mut reader = Reader::new(connection.frame().await?);
        let granted =
            ConnectResponse::decode(&mut reader).map_err(|error| ConnectionLost(error.to_string()))?;
        let timeout_ms = u64::try_from(granted.timeout_ms).unwrap_or(0);
        if timeout_ms == 0 {
            return Err(ConnectionLost("no session was granted".to_owned()));
        }
        connection.timeout = Duration::from_millis(timeout_ms);
        Ok(connection)
    }

    /// Returns the session timeout that the server granted.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Sends a request and reads its reply. If the future is dropped before its end, the connection must not
    /// be used any more.
    pub async fn call(&mut self, request: &Request) -> Result<Result<Reply, ErrorCode>, ConnectionLost> {
        tokio::time::timeout(TIMEOUT, self.call_within(request))
            .await
            .unwrap_or_else(|_| Err(ConnectionLost("no answer in time".to_owned())))
    }

    async fn call_within(&mut self, request: &Request) -> Result<Result<Reply, ErrorCode>, ConnectionLost> {
        let expected = self.send(request).await?;
        loop {
            let mut reader = Reader::new(self.frame().await?);
            let header = decoded(ReplyHeader::decode(&mut reader))?;
            if header.xid == xid::NOTIFICATION {
                self.notifications
                    .push(decoded(Notification::decode(&mut reader))?);
                continue;
            }
            if header.xid != expected {
                return Err(ConnectionLost(format!(
                    "the reply to {} instead of {expected}",
                    header.xid
                )));
            }
            return match header.err {
                ErrorCode::OK => Ok(Ok(decoded(Reply::decode(request, &mut reader))?)),
                code => Ok(Err(code)),
            };
        }
    }

    async fn send(&mut self, request: &Request) -> Result<i32, ConnectionLost> {
        let xid = request.fixed_xid().unwrap_or(self.next_xid);
        self.next_xid += 1;
        let mut bytes = BytesMut::new();
        request.write_frame(xid, &mut bytes);
        self.stream.write_all(&bytes).await?;
        Ok(xid)
    }

    /// Waits up to `time` for a watch notification; returns whether one has arrived. No request may be in
    /// flight.
    pub async fn listen(&mut self, time: Duration) -> Result<bool, ConnectionLost> {
        if self.notifications.is_empty() {
            // The timeout cancels between two reads at most; bytes received so far stay in the buffer for the
            // next call.
            let Ok(body) = tokio::time::timeout(time, self.frame()).await else {
                return Ok(false);
            };
            let mut reader = Reader::new(body?);
            let header = decoded(ReplyHeader::decode(&mut reader))?;
            if header.xid != xid::NOTIFICATION {
                return Err(ConnectionLost(format!("an unexpected reply to {}", header.xid)));
            }
        }
        self.notifications.clear();
        Ok(true)
    }

    async fn frame(&mut self) -> Result<Bytes, ConnectionLost> {
        loop {
            let taken = frame::take(&mut self.received, LONGEST_FRAME);
            if let Some(body) = taken.map_err(|error| ConnectionLost(error.to_string()))? {
                return Ok(body);
            }
            if self.stream.read_buf(&mut self.received).await? == 0 {
                return Err(ConnectionLost("the server closed the connection".to_owned()));
            }
        }
    }
}

fn decoded<T>(decoded: Result<T, zk_wire::DecodeError>) -> Result<T, ConnectionLost> {
    decoded.map_err(|error| ConnectionLost(format!("a malformed reply: {error}")))
}
