//! Several operations in one request, and their results.
//!
//! A header with the type precedes each item and each result, and a header that is marked as the last one
//! ends the list. There is no count.

use bytes::Bytes;

use crate::{DecodeError, ErrorCode, Reader, Request, Stat, Writer, op_code};

/// Error field of an item's header, and type in the last header.
const NOTHING: i32 = -1;

/// Header of an item or a result, or the end mark.
struct MultiHeader {
    op: i32,
    done: bool,
    err: i32,
}

impl MultiHeader {
    const END: Self = Self {
        op: NOTHING,
        done: true,
        err: NOTHING,
    };

    fn encode(&self, to: &mut Writer<'_>) {
        to.int(self.op);
        to.bool(self.done);
        to.int(self.err);
    }

    fn decode(from: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self {
            op: from.int()?,
            done: from.bool()?,
            err: from.int()?,
        })
    }

    /// Returns the type of the next item; `None` at the end. Only the mark decides, as in ZooKeeper.
    fn next(from: &mut Reader) -> Result<Option<i32>, DecodeError> {
        let header = Self::decode(from)?;
        Ok((!header.done).then_some(header.op))
    }
}

pub(crate) fn encode(items: &[Request], to: &mut Writer<'_>) {
    for item in items {
        let header = MultiHeader {
            op: item.op_code(),
            done: false,
            err: NOTHING,
        };
        header.encode(to);
        item.encode(to);
    }
    MultiHeader::END.encode(to);
}

/// Reads the items of a multi. Other operations are rejected as malformed, as in ZooKeeper.
pub(crate) fn decode(from: &mut Reader) -> Result<Request, DecodeError> {
    let items = decode_items(from, |op| {
        matches!(
            op,
            op_code::CREATE
                | op_code::CREATE2
                | op_code::CREATE_CONTAINER
                | op_code::CREATE_TTL
                | op_code::DELETE
                | op_code::SET_DATA
                | op_code::CHECK
        )
    })?;
    Ok(Request::Multi(items))
}

/// Reads the items of a multiRead.
pub(crate) fn decode_read(from: &mut Reader) -> Result<Request, DecodeError> {
    let items = decode_items(from, |op| matches!(op, op_code::GET_DATA | op_code::GET_CHILDREN))?;
    Ok(Request::MultiRead(items))
}

fn decode_items(from: &mut Reader, is_allowed: impl Fn(i32) -> bool) -> Result<Vec<Request>, DecodeError> {
    let mut items = Vec::new();
    while let Some(op) = MultiHeader::next(from)? {
        // Lists are not allowed in lists, so the recursion ends here.
        if !is_allowed(op) {
            return Err(DecodeError::Malformed("multi: operation not allowed in it"));
        }
        items.push(Request::decode(op, from)?);
    }
    Ok(items)
}

/// Result of one item of a multi or multiRead.
///
/// In a failed multi all results are [`MultiResult::Error`]: with [`ErrorCode::OK`] before the failed item,
/// and with [`ErrorCode::RUNTIME_INCONSISTENCY`] after it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MultiResult {
    /// create: the path.
    Create(String),
    /// create2, createContainer and createTTL: path and stat.
    Create2(String, Stat),
    /// delete.
    Delete,
    /// setData.
    SetData(Stat),
    /// check.
    Check,
    /// getData.
    GetData(Option<Bytes>, Stat),
    /// getChildren: names.
    GetChildren(Vec<String>),
    /// Error of any operation.
    Error(ErrorCode),
}

impl MultiResult {
    /// Returns the type code, which is not always that of the request.
    pub fn op_code(&self) -> i32 {
        match self {
            MultiResult::Create(_) => op_code::CREATE,
            MultiResult::Create2(..) => op_code::CREATE2,
            MultiResult::Delete => op_code::DELETE,
            MultiResult::SetData(_) => op_code::SET_DATA,
            MultiResult::Check => op_code::CHECK,
            MultiResult::GetData(..) => op_code::GET_DATA,
            MultiResult::GetChildren(_) => op_code::GET_CHILDREN,
            MultiResult::Error(_) => op_code::ERROR,
        }
    }

    pub(crate) fn encode_list(results: &[Self], to: &mut Writer<'_>) {
        for result in results {
            result.encode(to);
        }
        MultiHeader::END.encode(to);
    }

    pub(crate) fn decode_list(from: &mut Reader) -> Result<Vec<Self>, DecodeError> {
        let mut results = Vec::new();
        while let Some(op) = MultiHeader::next(from)? {
            results.push(Self::decode(op, from)?);
        }
        Ok(results)
    }

    fn encode(&self, to: &mut Writer<'_>) {
        let err = match self {
            MultiResult::Error(code) => code.0,
            _ => ErrorCode::OK.0,
        };
        let header = MultiHeader {
            op: self.op_code(),
            done: false,
            err,
        };
        header.encode(to);
        match self {
            MultiResult::Create(path) => to.text(path),
            MultiResult::Create2(path, stat) => {
                to.text(path);
                stat.encode(to);
            }
            MultiResult::Delete | MultiResult::Check => {}
            MultiResult::SetData(stat) => stat.encode(to),
            MultiResult::GetData(data, stat) => {
                to.buffer(data.as_deref());
                stat.encode(to);
            }
            MultiResult::GetChildren(names) => to.texts(names),
            // The header contains the code, too.
            MultiResult::Error(code) => to.int(code.0),
        }
    }

    fn decode(op: i32, from: &mut Reader) -> Result<Self, DecodeError> {
        Ok(match op {
            op_code::CREATE => MultiResult::Create(from.text()?),
            op_code::CREATE2 => MultiResult::Create2(from.text()?, Stat::decode(from)?),
            op_code::DELETE => MultiResult::Delete,
            op_code::SET_DATA => MultiResult::SetData(Stat::decode(from)?),
            op_code::CHECK => MultiResult::Check,
            op_code::GET_DATA => MultiResult::GetData(from.buffer()?, Stat::decode(from)?),
            op_code::GET_CHILDREN => MultiResult::GetChildren(from.texts()?),
            // The error in the body counts, as in ZooKeeper's client.
            op_code::ERROR => MultiResult::Error(ErrorCode(from.int()?)),
            _ => return Err(DecodeError::Malformed("multi: unknown type of a result")),
        })
    }
}
