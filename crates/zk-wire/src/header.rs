//! Headers of all requests and replies except the handshake, and the numbers that link replies to requests.

use bytes::BytesMut;

use crate::{DecodeError, ErrorCode, Notification, Reader, Reply, Writer, frame};

/// Reserved numbers of requests and replies. Clients number their other requests from 1 on.
pub mod xid {
    /// Number of notifications, which reply to no request.
    pub const NOTIFICATION: i32 = -1;
    /// Number of ping and its reply.
    pub const PING: i32 = -2;
    /// Number of auth and its reply.
    pub const AUTH: i32 = -4;
    /// Number of setWatches and setWatches2 and their replies in ZooKeeper's C client. The Java client
    /// numbers them like other requests.
    pub const SET_WATCHES: i32 = -8;
}

/// Header of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestHeader {
    /// Client's number of the request, which its reply repeats.
    pub xid: i32,
    /// Code of the operation, see [`op_code`](crate::op_code).
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

/// Header of a reply or a notification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyHeader {
    /// Number of the request, or [`xid::NOTIFICATION`].
    pub xid: i32,
    /// Zxid of the write, or of the state that was read.
    pub zxid: i64,
    /// Error code. A body follows only if it is [`ErrorCode::OK`].
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

    /// Appends a reply as a frame: this header, and the body if there is one. A reply with an error has none.
    pub fn write_frame(&self, body: Option<&Reply>, to: &mut BytesMut) {
        frame::write(to, |to| {
            self.encode(to);
            if let Some(body) = body {
                body.encode(to);
            }
        });
    }

    /// Appends a notification as a frame. Servers before 3.9 send -1 instead of the zxid of the change, and
    /// clients accept either.
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
