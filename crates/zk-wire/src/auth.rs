//! Authentication requests: auth and sasl.

use crate::{DecodeError, Reader, Request, Writer};

pub(crate) fn encode(kind: i32, scheme: &str, auth: Option<&[u8]>, to: &mut Writer<'_>) {
    to.int(kind);
    to.text(scheme);
    to.buffer(auth);
}

pub(crate) fn decode(from: &mut Reader) -> Result<Request, DecodeError> {
    Ok(Request::Auth {
        kind: from.int()?,
        scheme: from.text()?,
        auth: from.buffer()?,
    })
}

pub(crate) fn encode_sasl(token: Option<&[u8]>, to: &mut Writer<'_>) {
    to.buffer(token);
}

pub(crate) fn decode_sasl(from: &mut Reader) -> Result<Request, DecodeError> {
    Ok(Request::Sasl {
        token: from.buffer()?,
    })
}
