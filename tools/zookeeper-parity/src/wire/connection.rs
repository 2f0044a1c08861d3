//! Client connection: sends one request, and returns everything that arrives up to its reply, in order.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use zk_wire::{
    ConnectRequest, ConnectResponse, ErrorCode, Notification, Outcome, Reader, Reply, ReplyHeader, Request,
    frame, xid,
};

/// Time limit of every wait for the server. It normally takes milliseconds; the limit turns a hanging test
/// into a failure.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Requested session timeout, far longer than any program: nothing may expire while it runs.
const SESSION_TIMEOUT_MS: i32 = 40_000;

/// Length above which a frame counts as broken; the largest reply of a program is far smaller.
const LONGEST_FRAME: usize = 16 << 20;

/// Size of a read.
const READ_BYTES: usize = 64 << 10;

/// Password of a session.
pub type Password = [u8; 16];

/// Session as granted by the server.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names are ZooKeeper's own")]
pub struct Accepted {
    pub session_id: i64,
    pub password: Password,
    pub timeout_ms: i32,
}

/// Result of an attempt to connect.
pub enum ConnectOutcome {
    /// The session is alive, with this connection.
    Accepted(Connection, Accepted),
    /// The session has ended, or the password is wrong. The server has closed the connection.
    Refused,
}

/// End of the wait for a reply.
#[derive(Debug)]
pub enum Reaction {
    /// The reply.
    Reply {
        /// Zxid of the header.
        zxid: i64,
        /// Body or error.
        outcome: Outcome,
    },
    /// The server closed the connection instead.
    Closed,
}

/// Everything that arrived from a request to its reply.
#[derive(Debug)]
pub struct Response {
    /// Notifications before the reply, in order.
    pub notifications: Vec<Notification>,
    /// The reply, or the end of the connection.
    pub reaction: Reaction,
}

/// Connection with a session.
pub struct Connection {
    stream: TcpStream,
    /// Received bytes that have not been parsed yet.
    received: BytesMut,
    next_xid: i32,
}

impl Connection {
    /// Connects, and opens a session or resumes an existing one.
    pub fn open(
        server: SocketAddr,
        session: Option<(i64, Password)>,
        last_zxid_seen: i64,
    ) -> Result<ConnectOutcome> {
        let stream = TcpStream::connect_timeout(&server, TIMEOUT).context("connect to the server")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut connection = Self {
            stream,
            received: BytesMut::new(),
            next_xid: 1,
        };

        let (session_id, password) = session.unwrap_or((0, [0; 16]));
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen,
            timeout_ms: SESSION_TIMEOUT_MS,
            session_id,
            password: Some(Bytes::copy_from_slice(&password)),
            read_only: Some(false),
        };
        let mut frame = BytesMut::new();
        request.write_frame(&mut frame);
        connection.stream.write_all(&frame)?;

        let Some(body) = connection.frame()? else {
            bail!("the server closed a connection without an answer: it is behind zxid {last_zxid_seen:#x}")
        };
        let mut reader = Reader::new(body);
        let ConnectResponse {
            timeout_ms,
            session_id,
            password,
            read_only,
            ..
        } = ConnectResponse::decode(&mut reader)?;
        reader.end()?;
        ensure!(
            read_only.is_some(),
            "the response does not say whether the server is read-only"
        );
        let Ok(password) = Password::try_from(password.as_deref().unwrap_or_default()) else {
            bail!("the server sent a password whose length is not 16 bytes")
        };
        if timeout_ms <= 0 {
            ensure!(
                connection.is_closed()?,
                "the server rejected a session but did not close the connection"
            );
            return Ok(ConnectOutcome::Refused);
        }
        Ok(ConnectOutcome::Accepted(
            connection,
            Accepted {
                session_id,
                password,
                timeout_ms,
            },
        ))
    }

    /// Sends a request and reads up to its reply.
    pub fn call(&mut self, request: &Request) -> Result<Response> {
        let xid = self.send(request)?;
        self.receive(request, xid)
    }

    /// Sends a request. Its reply must be read with [`Connection::receive`], in the order of sending.
    pub fn send(&mut self, request: &Request) -> Result<i32> {
        let xid = request.fixed_xid().unwrap_or(self.next_xid);
        self.next_xid += 1;
        let mut frame = BytesMut::new();
        request.write_frame(xid, &mut frame);
        self.stream.write_all(&frame).context("send a request")?;
        Ok(xid)
    }

    /// Reads up to the reply to a request.
    pub fn receive(&mut self, request: &Request, xid: i32) -> Result<Response> {
        let mut notifications = Vec::new();
        loop {
            let Some(body) = self.frame()? else {
                return Ok(Response {
                    notifications,
                    reaction: Reaction::Closed,
                });
            };
            let mut reader = Reader::new(body);
            let ReplyHeader { xid: got, zxid, err } = ReplyHeader::decode(&mut reader)?;
            if got == xid::NOTIFICATION {
                notifications.push(Notification::decode(&mut reader)?);
                reader.end()?;
                continue;
            }
            ensure!(got == xid, "expected the reply to {xid}, but got that to {got}");
            let outcome = if err == ErrorCode::OK {
                let reply = Reply::decode(request, &mut reader)
                    .with_context(|| format!("read the reply to {request:?}"))?;
                // Remaining bytes mean that the record has another type.
                reader.end()?;
                Ok(reply)
            } else {
                Err(err)
            };
            return Ok(Response {
                notifications,
                reaction: Reaction::Reply { zxid, outcome },
            });
        }
    }

    /// Waits for a notification. No request may be in flight.
    pub fn next_notification(&mut self) -> Result<Notification> {
        let Some(body) = self.frame()? else {
            bail!("the server closed an idle connection")
        };
        let mut reader = Reader::new(body);
        let xid = ReplyHeader::decode(&mut reader)?.xid;
        ensure!(xid == xid::NOTIFICATION, "an unexpected reply to {xid}");
        let notification = Notification::decode(&mut reader)?;
        reader.end()?;
        Ok(notification)
    }

    /// Ends the connection without closing its session, and waits until the server has noticed. If the
    /// session resumed while the server was still busy with the older connection, ZooKeeper would confuse the
    /// two.
    pub fn disconnect(mut self) -> Result<()> {
        self.stream
            .shutdown(Shutdown::Write)
            .context("end a connection")?;
        ensure!(
            self.is_closed()?,
            "the server sent something to a client that has gone"
        );
        Ok(())
    }

    /// Waits for the server to close the connection; returns `false` if it sent something instead.
    pub fn is_closed(&mut self) -> Result<bool> {
        Ok(self.frame()?.is_none())
    }

    /// Returns the next frame's body; `None` if the server has closed the connection.
    fn frame(&mut self) -> Result<Option<Bytes>> {
        let mut chunk = [0; READ_BYTES];
        loop {
            if let Some(body) = frame::take(&mut self.received, LONGEST_FRAME)? {
                return Ok(Some(body));
            }
            let count = match self.stream.read(&mut chunk) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if is_end(&error) => 0,
                Err(error) => return Err(error).context("wait for the server"),
            };
            if count == 0 {
                ensure!(
                    self.received.is_empty(),
                    "the server closed a connection in the middle of a frame"
                );
                return Ok(None);
            }
            self.received.extend_from_slice(&chunk[..count]);
        }
    }
}

/// Returns whether an error means that the other side has ended the connection.
fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}
