//! Requests that change an existing znode, and check, which only requires its version.

use crate::{AclEntry, DecodeError, Reader, Request, Writer};

pub(crate) fn encode_path_and_version(path: &str, version: i32, to: &mut Writer<'_>) {
    to.text(path);
    to.int(version);
}

pub(crate) fn decode_delete(from: &mut Reader) -> Result<Request, DecodeError> {
    Ok(Request::Delete {
        path: from.text()?,
        version: from.int()?,
    })
}

pub(crate) fn decode_check(from: &mut Reader) -> Result<Request, DecodeError> {
    Ok(Request::Check {
        path: from.text()?,
        version: from.int()?,
    })
}

pub(crate) fn encode_set_data(path: &str, data: Option<&[u8]>, version: i32, to: &mut Writer<'_>) {
    to.text(path);
    to.buffer(data);
    to.int(version);
}

pub(crate) fn decode_set_data(from: &mut Reader) -> Result<Request, DecodeError> {
    Ok(Request::SetData {
        path: from.text()?,
        data: from.buffer()?,
        version: from.int()?,
    })
}

pub(crate) fn encode_set_acl(path: &str, acl: Option<&[AclEntry]>, version: i32, to: &mut Writer<'_>) {
    to.text(path);
    AclEntry::encode_nullable_list(acl, to);
    to.int(version);
}

pub(crate) fn decode_set_acl(from: &mut Reader) -> Result<Request, DecodeError> {
    Ok(Request::SetAcl {
        path: from.text()?,
        acl: from.nullable_vector(AclEntry::decode)?,
        version: from.int()?,
    })
}
