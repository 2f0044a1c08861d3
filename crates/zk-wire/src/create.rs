//! The four create requests. They differ in the kinds of znodes that they create, and in their replies.

use crate::{AclEntry, DecodeError, Reader, Request, Writer, op_code};

/// Type of a create request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreateCall {
    /// create: the reply has the path.
    Create,
    /// create2: the reply has path and stat.
    Create2,
    /// createContainer: the reply has path and stat.
    Container,
    /// createTTL, with the TTL in milliseconds: the reply has path and stat.
    Ttl(i64),
}

impl CreateCall {
    /// Returns ZooKeeper's code of the operation.
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

/// Reads the body of the three requests without a TTL.
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
