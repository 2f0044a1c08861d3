//! Connect handshake: the first frame in each direction, without a header.
//!
//! `readOnly` was appended in a later version. A client that does not send it does not expect it either, so a
//! server includes it in its response only if the request has it.

use bytes::{Bytes, BytesMut};

use crate::{DecodeError, Reader, Writer, frame};

/// Connect request: opens a session, or resumes an existing one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectRequest {
    /// Always 0; there has been no other version.
    pub protocol_version: i32,
    /// Greatest zxid that the client has seen. A server that lags behind it must not serve the client.
    pub last_zxid_seen: i64,
    /// Requested session timeout in milliseconds.
    pub timeout_ms: i32,
    /// Session id; 0 for a new session.
    pub session_id: i64,
    /// Password of the session: 16 bytes, zeros or null for a new session.
    pub password: Option<Bytes>,
    /// True if a server without a quorum would do; `None` if the client is too old to send it.
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

/// Connect response: grants a session, or rejects the request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectResponse {
    /// Always 0; there has been no other version.
    pub protocol_version: i32,
    /// Granted session timeout in milliseconds; 0 or less if the requested session has expired.
    pub timeout_ms: i32,
    /// Session id; 0 if the request was rejected.
    pub session_id: i64,
    /// Password of the session: 16 bytes, zeros if the request was rejected.
    pub password: Option<Bytes>,
    /// True if the server has no quorum; `None` if the request did not have the flag.
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
