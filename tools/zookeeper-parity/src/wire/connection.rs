//! A client's connection: it sends one request, and returns what came until its reply, in order.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use zk_wire::{
    ConnectRequest, ConnectResponse, ErrorCode, Notification, Outcome, Reader, Reply, ReplyHeader, Request,
    frame, xid,
};

/// How long a server may take for anything. It takes milliseconds; this only turns a hanging test into a failure.
const PATIENCE: Duration = Duration::from_secs(20);

/// The session timeout that is asked for, far longer than any program: nothing may expire while it runs.
const SESSION_TIMEOUT_MS: i32 = 40_000;

/// A frame longer than this is taken for a broken one; the largest reply of a program is far smaller.
const LONGEST_FRAME: usize = 16 << 20;

/// So much is read at once.
const READ_BYTES: usize = 64 << 10;

/// What proves that a session is one's own.
pub type Password = [u8; 16];

/// A session as its server granted it.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names are ZooKeeper's own")]
pub struct Accepted {
    pub session_id: i64,
    pub password: Password,
    pub timeout_ms: i32,
}

/// What came of an attempt to connect.
pub enum Resumed {
    /// The session lives, and this is its connection.
    Accepted(Connection, Accepted),
    /// The session has ended, or the password is not its own. The server has closed the connection.
    Refused,
}

/// What ended the wait for a reply.
#[derive(Debug)]
pub enum Answered {
    /// The reply.
    Reply {
        /// The header's.
        zxid: i64,
        /// Body or error.
        outcome: Outcome,
    },
    /// The server closed the connection instead.
    Closed,
}

/// What a connection was told from a request until its reply.
#[derive(Debug)]
pub struct Answer {
    /// Notifications that came before the reply, in order.
    pub notifications: Vec<Notification>,
    /// What came last.
    pub answered: Answered,
}

/// A connection with a session.
pub struct Connection {
    stream: TcpStream,
    /// What has come and was not taken yet.
    received: BytesMut,
    next_xid: i32,
}

impl Connection {
    /// Connects, and opens a session or takes up an existing one.
    pub fn open(
        server: SocketAddr,
        session: Option<(i64, Password)>,
        last_zxid_seen: i64,
    ) -> Result<Resumed> {
        let stream = TcpStream::connect_timeout(&server, PATIENCE).context("connect to the server")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
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
            bail!("the server closed a connection without a word: it has not seen zxid {last_zxid_seen:#x}")
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
            "the server does not answer to whether it is read-only"
        );
        let Ok(password) = Password::try_from(password.as_deref().unwrap_or_default()) else {
            bail!("the server sent a password that has not 16 bytes")
        };
        if timeout_ms <= 0 {
            ensure!(
                connection.is_closed()?,
                "the server refused a session and kept the connection"
            );
            return Ok(Resumed::Refused);
        }
        Ok(Resumed::Accepted(
            connection,
            Accepted {
                session_id,
                password,
                timeout_ms,
            },
        ))
    }

    /// Sends a request and reads until its reply.
    pub fn call(&mut self, request: &Request) -> Result<Answer> {
        let xid = self.send(request)?;
        self.receive(request, xid)
    }

    /// Sends a request. Its reply must be taken with [`Connection::receive`], in the order of sending.
    pub fn send(&mut self, request: &Request) -> Result<i32> {
        let xid = request.fixed_xid().unwrap_or(self.next_xid);
        self.next_xid += 1;
        let mut frame = BytesMut::new();
        request.write_frame(xid, &mut frame);
        self.stream.write_all(&frame).context("send a request")?;
        Ok(xid)
    }

    /// Reads until the reply to a request.
    pub fn receive(&mut self, request: &Request, xid: i32) -> Result<Answer> {
        let mut notifications = Vec::new();
        loop {
            let Some(body) = self.frame()? else {
                return Ok(Answer {
                    notifications,
                    answered: Answered::Closed,
                });
            };
            let mut reader = Reader::new(body);
            let ReplyHeader { xid: got, zxid, err } = ReplyHeader::decode(&mut reader)?;
            if got == xid::NOTIFICATION {
                notifications.push(Notification::decode(&mut reader)?);
                reader.end()?;
                continue;
            }
            ensure!(got == xid, "the reply to {xid} was expected, that to {got} came");
            let outcome = if err == ErrorCode::OK {
                let reply = Reply::decode(request, &mut reader)
                    .with_context(|| format!("read the reply to {request:?}"))?;
                // A longer record is another one than we took it for.
                reader.end()?;
                Ok(reply)
            } else {
                Err(err)
            };
            return Ok(Answer {
                notifications,
                answered: Answered::Reply { zxid, outcome },
            });
        }
    }

    /// Waits for a notification. No request may be under way.
    pub fn next_notification(&mut self) -> Result<Notification> {
        let Some(body) = self.frame()? else {
            bail!("the server closed an idle connection")
        };
        let mut reader = Reader::new(body);
        let xid = ReplyHeader::decode(&mut reader)?.xid;
        ensure!(
            xid == xid::NOTIFICATION,
            "a reply to {xid} came, which nobody waits for"
        );
        let notification = Notification::decode(&mut reader)?;
        reader.end()?;
        Ok(notification)
    }

    /// Ends the connection without closing its session, and waits until the server has noticed: if the session came
    /// back while the server was still busy with its older connection, ZooKeeper would mistake the one for the other.
    pub fn leave(mut self) -> Result<()> {
        self.stream
            .shutdown(Shutdown::Write)
            .context("end a connection")?;
        ensure!(
            self.is_closed()?,
            "the server sent something to a client that has gone"
        );
        Ok(())
    }

    /// Waits for the server to close the connection; false if it sent something instead.
    pub fn is_closed(&mut self) -> Result<bool> {
        Ok(self.frame()?.is_none())
    }

    /// The next frame's body; none if the server has closed the connection.
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

/// Whether an error says that the other side has ended the connection.
fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}
