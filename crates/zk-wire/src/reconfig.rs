//! Reconfiguration of the ensemble. Clients send null for unused fields.

use crate::{DecodeError, Reader, Request, Writer};

/// Writes the body. `servers` are the joining servers, the leaving ones, and all new members.
pub(crate) fn encode(servers: [Option<&str>; 3], from_config: i64, to: &mut Writer<'_>) {
    for text in servers {
        to.nullable_text(text);
    }
    to.long(from_config);
}

pub(crate) fn decode(from: &mut Reader) -> Result<Request, DecodeError> {
    Ok(Request::Reconfig {
        joining_servers: from.nullable_text()?,
        leaving_servers: from.nullable_text()?,
        new_members: from.nullable_text()?,
        from_config: from.long()?,
    })
}
