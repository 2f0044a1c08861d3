//! Several operations in one request, and their results.
//!
//! Each item and each result stands behind a header that names its type, and a header that is marked as the last one ends
//! the list. There is no count.

use bytes::Bytes;

use crate::{DecodeError, ErrorCode, Reader, Request, Stat, Writer, op_code};

/// Where the header of an item has no error to tell, and in the last header for the type.
const NOTHING: i32 = -1;

/// Stands before each item and each result, and at the end.
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

    /// The type of what follows; none at the end. ZooKeeper looks at the mark only.
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

/// Reads the items of a multi. ZooKeeper refuses other ones as it refuses what it cannot read.
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
        // No list is allowed in a list, so this is as deep as it gets.
        if !is_allowed(op) {
            return Err(DecodeError::Malformed("multi: an item is not allowed in it"));
        }
        items.push(Request::decode(op, from)?);
    }
    Ok(items)
}

/// What became of one item of a multi or multiRead.
///
/// In a multi that failed all are [`MultiResult::Error`]: with [`ErrorCode::OK`] before the one that failed, and with
/// [`ErrorCode::RUNTIME_INCONSISTENCY`] behind it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MultiResult {
    /// Of create: the path.
    Create(String),
    /// Of create2, createContainer and createTTL: path and stat.
    Create2(String, Stat),
    /// Of delete.
    Delete,
    /// Of setData.
    SetData(Stat),
    /// Of check.
    Check,
    /// Of getData.
    GetData(Option<Bytes>, Stat),
    /// Of getChildren: names.
    GetChildren(Vec<String>),
    /// Of any.
    Error(ErrorCode),
}

impl MultiResult {
    /// The number of the type, which is not always that of the request.
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
            // It stands here for a second time.
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
            // The body's error counts, as in ZooKeeper's client.
            op_code::ERROR => MultiResult::Error(ErrorCode(from.int()?)),
            _ => return Err(DecodeError::Malformed("multi: the type of a result is not known")),
        })
    }
}
