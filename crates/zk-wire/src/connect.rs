//! The handshake: the first frame in each direction, without a header.
//!
//! `readOnly` was added to the end later. A client that does not send it does not expect it, either: a server answers with it
//! only if it was asked with it.

use bytes::{Bytes, BytesMut};

use crate::{DecodeError, Reader, Writer, frame};

/// A client opens a session, or takes up one that it has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectRequest {
    /// 0: there has been no other.
    pub protocol_version: i32,
    /// The largest zxid that the client has seen. A server that is behind it must not serve the client.
    pub last_zxid_seen: i64,
    /// The session timeout that is asked for.
    pub timeout_ms: i32,
    /// 0 for a new session.
    pub session_id: i64,
    /// What proves that the session is the client's own: 16 bytes, zeros or null for a new one.
    pub password: Option<Bytes>,
    /// Whether a server without a quorum would do. None if the client is too old to say so.
    pub read_only: Option<bool>,
}

impl ConnectRequest {
    /// Appends the record.
    pub fn encode(&self, to: &mut Writer<'_>) {
        to.int(self.protocol_version);
        to.long(self.last_zxid_seen);
        to.int(self.timeout_ms);
        to.long(self.session_id);
        to.buffer(self.password.as_deref());
        write_read_only(to, self.read_only);
    }

    /// Reads the record.
    pub fn decode(from: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self {
            protocol_version: from.int()?,
            last_zxid_seen: from.long()?,
            timeout_ms: from.int()?,
            session_id: from.long()?,
            password: from.buffer()?,
            read_only: read_read_only(from)?,
        })
    }

    /// Appends the record as a frame.
    pub fn write_frame(&self, to: &mut BytesMut) {
        frame::write(to, |to| self.encode(to));
    }
}

/// A server grants a session, or refuses it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectResponse {
    /// 0: there has been no other.
    pub protocol_version: i32,
    /// The session timeout that is granted; 0 or less if the session that was named has ended.
    pub timeout_ms: i32,
    /// The session; 0 if it was refused.
    pub session_id: i64,
    /// What proves that the session is the client's own: 16 bytes, zeros if it was refused.
    pub password: Option<Bytes>,
    /// Whether this server has no quorum. None for a client that did not say what it thinks of that.
    pub read_only: Option<bool>,
}

impl ConnectResponse {
    /// Appends the record.
    pub fn encode(&self, to: &mut Writer<'_>) {
        to.int(self.protocol_version);
        to.int(self.timeout_ms);
        to.long(self.session_id);
        to.buffer(self.password.as_deref());
        write_read_only(to, self.read_only);
    }

    /// Reads the record.
    pub fn decode(from: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self {
            protocol_version: from.int()?,
            timeout_ms: from.int()?,
            session_id: from.long()?,
            password: from.buffer()?,
            read_only: read_read_only(from)?,
        })
    }

    /// Appends the record as a frame.
    pub fn write_frame(&self, to: &mut BytesMut) {
        frame::write(to, |to| self.encode(to));
    }
}

fn write_read_only(to: &mut Writer<'_>, read_only: Option<bool>) {
    if let Some(read_only) = read_only {
        to.bool(read_only);
    }
}

fn read_read_only(from: &mut Reader) -> Result<Option<bool>, DecodeError> {
    if from.remaining() == 0 {
        return Ok(None);
    }
    from.bool().map(Some)
}
