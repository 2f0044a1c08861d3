//! What stands before every request and reply but the handshake, and the numbers that link the two.

use bytes::BytesMut;

use crate::{DecodeError, ErrorCode, Notification, Reader, Reply, Writer, frame};

/// Numbers of requests and replies that are no client's own. Those count up from 1.
pub mod xid {
    /// Of a notification, which answers nothing.
    pub const NOTIFICATION: i32 = -1;
    /// Of ping and its reply.
    pub const PING: i32 = -2;
    /// Of auth and its reply.
    pub const AUTH: i32 = -4;
    /// Of setWatches and setWatches2 and their reply, from ZooKeeper's client in C. Java's numbers them like other requests.
    pub const SET_WATCHES: i32 = -8;
}

/// Stands before a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestHeader {
    /// The client's number of the request; the reply has the same.
    pub xid: i32,
    /// The operation's number: see [`op_code`](crate::op_code).
    pub op: i32,
}

impl RequestHeader {
    /// Appends the record.
    pub fn encode(&self, to: &mut Writer<'_>) {
        to.int(self.xid);
        to.int(self.op);
    }

    /// Reads the record.
    pub fn decode(from: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self {
            xid: from.int()?,
            op: from.int()?,
        })
    }
}

/// Stands before a reply or a notification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyHeader {
    /// That of the request, or [`xid::NOTIFICATION`].
    pub xid: i32,
    /// Of a write, its own zxid; of a read, that of the state which was read.
    pub zxid: i64,
    /// A body follows only if it is [`ErrorCode::OK`].
    pub err: ErrorCode,
}

impl ReplyHeader {
    /// Appends the record.
    pub fn encode(&self, to: &mut Writer<'_>) {
        to.int(self.xid);
        to.long(self.zxid);
        to.int(self.err.0);
    }

    /// Reads the record.
    pub fn decode(from: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self {
            xid: from.int()?,
            zxid: from.long()?,
            err: ErrorCode(from.int()?),
        })
    }

    /// Appends a reply as a frame: this header and, if there is one, the body. A reply with an error has none.
    pub fn write_frame(&self, body: Option<&Reply>, to: &mut BytesMut) {
        frame::write(to, |to| {
            self.encode(to);
            if let Some(body) = body {
                body.encode(to);
            }
        });
    }

    /// Appends a notification as a frame. Servers before 3.9 say -1 for the zxid of the change, and clients take either.
    pub fn write_notification(zxid: i64, notification: &Notification, to: &mut BytesMut) {
        let header = Self {
            xid: xid::NOTIFICATION,
            zxid,
            err: ErrorCode::OK,
        };
        frame::write(to, |to| {
            header.encode(to);
            notification.encode(to);
        });
    }
}
