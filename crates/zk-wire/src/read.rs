//! Read requests and sync. All have a path; those that can set a watch have a flag for it.

use crate::{DecodeError, Reader, Request, Writer};

pub(crate) fn encode_path(path: &str, to: &mut Writer<'_>) {
    to.text(path);
}

pub(crate) fn encode_path_and_watch(path: &str, watch: bool, to: &mut Writer<'_>) {
    to.text(path);
    to.bool(watch);
}

pub(crate) fn decode_exists(from: &mut Reader) -> Result<Request, DecodeError> {
    Ok(Request::Exists {
        path: from.text()?,
        watch: from.bool()?,
    })
}

pub(crate) fn decode_get_data(from: &mut Reader) -> Result<Request, DecodeError> {
    Ok(Request::GetData {
        path: from.text()?,
        watch: from.bool()?,
    })
}

pub(crate) fn decode_get_children(from: &mut Reader) -> Result<Request, DecodeError> {
    Ok(Request::GetChildren {
        path: from.text()?,
        watch: from.bool()?,
    })
}

pub(crate) fn decode_get_children2(from: &mut Reader) -> Result<Request, DecodeError> {
    Ok(Request::GetChildren2 {
        path: from.text()?,
        watch: from.bool()?,
    })
}

pub(crate) fn decode_get_acl(from: &mut Reader) -> Result<Request, DecodeError> {
    Ok(Request::GetAcl { path: from.text()? })
}

pub(crate) fn decode_get_all_children_number(from: &mut Reader) -> Result<Request, DecodeError> {
    Ok(Request::GetAllChildrenNumber { path: from.text()? })
}

/// Reads the body. ZooKeeper accepts null as an empty prefix.
pub(crate) fn decode_get_ephemerals(from: &mut Reader) -> Result<Request, DecodeError> {
    Ok(Request::GetEphemerals {
        prefix: from.nullable_text()?.unwrap_or_default(),
    })
}

pub(crate) fn decode_sync(from: &mut Reader) -> Result<Request, DecodeError> {
    Ok(Request::Sync { path: from.text()? })
}
