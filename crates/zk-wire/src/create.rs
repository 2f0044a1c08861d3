//! The four requests that create. They differ in what they may make, and in what they return.

use crate::{AclEntry, DecodeError, Reader, Request, Writer, op_code};

/// Which of the four requests that create is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreateCall {
    /// Returns the path.
    Create,
    /// Returns path and stat.
    Create2,
    /// For containers; returns path and stat.
    Container,
    /// For nodes with a time to live, in milliseconds; returns path and stat.
    Ttl(i64),
}

impl CreateCall {
    /// ZooKeeper's number of the operation.
    pub fn op_code(self) -> i32 {
        match self {
            CreateCall::Create => op_code::CREATE,
            CreateCall::Create2 => op_code::CREATE2,
            CreateCall::Container => op_code::CREATE_CONTAINER,
            CreateCall::Ttl(_) => op_code::CREATE_TTL,
        }
    }
}

pub(crate) fn encode(
    call: CreateCall,
    path: &str,
    data: Option<&[u8]>,
    acl: Option<&[AclEntry]>,
    flags: i32,
    to: &mut Writer<'_>,
) {
    to.text(path);
    to.buffer(data);
    AclEntry::encode_nullable_list(acl, to);
    to.int(flags);
    if let CreateCall::Ttl(ttl_ms) = call {
        to.long(ttl_ms);
    }
}

/// Reads what the three calls without a time to live have in common, which is all that they have.
pub(crate) fn decode(call: CreateCall, from: &mut Reader) -> Result<Request, DecodeError> {
    Ok(Request::Create {
        call,
        path: from.text()?,
        data: from.buffer()?,
        acl: from.nullable_vector(AclEntry::decode)?,
        flags: from.int()?,
    })
}

pub(crate) fn decode_ttl(from: &mut Reader) -> Result<Request, DecodeError> {
    Ok(Request::Create {
        path: from.text()?,
        data: from.buffer()?,
        acl: from.nullable_vector(AclEntry::decode)?,
        flags: from.int()?,
        call: CreateCall::Ttl(from.long()?),
    })
}
