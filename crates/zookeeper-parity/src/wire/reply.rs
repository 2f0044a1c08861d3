//! What a server answers, and how it is read. Whether it is right is not known here.

use super::code::ErrorCode;
use super::jute::{Malformed, Reader};
use super::request::{AclEntry, CreateCall, Request};

/// A znode's stat, with the server's own zxids, times and session ids.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "the names are ZooKeeper's own")]
pub struct Stat {
    pub czxid: i64,
    pub mzxid: i64,
    pub ctime: i64,
    pub mtime: i64,
    pub version: i32,
    pub cversion: i32,
    pub aversion: i32,
    pub ephemeral_owner: i64,
    pub data_length: i32,
    pub num_children: i32,
    pub pzxid: i64,
}

/// The body of a reply without an error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// No body.
    Done,
    /// Of create and sync.
    Path(String),
    /// Of the other requests that create.
    Created(String, Stat),
    /// Of exists, setData and setACL.
    Stat(Stat),
    /// Of getData.
    Data(Option<Vec<u8>>, Stat),
    /// Of getChildren.
    Names(Vec<String>),
    /// Of getChildren2.
    NamesAndStat(Vec<String>, Stat),
    /// Of getACL.
    Acl(Vec<AclEntry>, Stat),
    /// Of getAllChildrenNumber and addWatch.
    Number(i32),
    /// Of getEphemerals.
    Paths(Vec<String>),
    /// Of whoAmI: schemes and names.
    Identities(Vec<(String, String)>),
    /// Of multi and multiRead.
    Results(Vec<Outcome>),
}

/// A reply's body, or its error.
pub type Outcome = Result<Reply, ErrorCode>;

/// A watch fired.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs, reason = "the names are ZooKeeper's own")]
pub struct Notification {
    pub kind: i32,
    pub state: i32,
    pub path: String,
}

impl Notification {
    pub(super) fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            kind: from.int()?,
            state: from.int()?,
            path: from.text()?,
        })
    }
}

impl Reply {
    /// Reads the body that belongs to a request.
    pub(super) fn read(request: &Request, from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match request {
            Request::Create {
                call: CreateCall::Create,
                ..
            }
            | Request::Sync { .. } => Reply::Path(from.text()?),
            Request::Create { .. } => Reply::Created(from.text()?, read_stat(from)?),
            Request::Exists { .. } | Request::SetData { .. } | Request::SetAcl { .. } => {
                Reply::Stat(read_stat(from)?)
            }
            Request::GetData { .. } => Reply::Data(from.buffer()?, read_stat(from)?),
            Request::GetAcl { .. } => Reply::Acl(from.vector(read_acl_entry)?, read_stat(from)?),
            Request::GetChildren { .. } => Reply::Names(from.vector(Reader::text)?),
            Request::GetChildren2 { .. } => Reply::NamesAndStat(from.vector(Reader::text)?, read_stat(from)?),
            Request::GetAllChildrenNumber { .. } | Request::AddWatch { .. } => Reply::Number(from.int()?),
            Request::GetEphemerals { .. } => Reply::Paths(from.vector(Reader::text)?),
            Request::WhoAmI => Reply::Identities(from.vector(|from| Ok((from.text()?, from.text()?)))?),
            Request::Multi(_) | Request::MultiRead(_) => Reply::Results(read_results(from)?),
            Request::Delete { .. }
            | Request::Check { .. }
            | Request::Auth { .. }
            | Request::CheckWatches { .. }
            | Request::RemoveWatches { .. }
            | Request::SetWatches2 { .. }
            | Request::Ping
            | Request::CloseSession => Reply::Done,
        })
    }
}

fn read_stat(from: &mut Reader<'_>) -> Result<Stat, Malformed> {
    Ok(Stat {
        czxid: from.long()?,
        mzxid: from.long()?,
        ctime: from.long()?,
        mtime: from.long()?,
        version: from.int()?,
        cversion: from.int()?,
        aversion: from.int()?,
        ephemeral_owner: from.long()?,
        data_length: from.int()?,
        num_children: from.int()?,
        pzxid: from.long()?,
    })
}

fn read_acl_entry(from: &mut Reader<'_>) -> Result<AclEntry, Malformed> {
    Ok(AclEntry {
        perms: from.int()?,
        scheme: from.text()?,
        id: from.text()?,
    })
}

/// Each result names its own type, which is not always the request's: all that create and return a stat say
/// create2, and a failed multi says error for every item.
fn read_results(from: &mut Reader<'_>) -> Result<Vec<Outcome>, Malformed> {
    let mut results = Vec::new();
    loop {
        let (op_code, done, _err) = (from.int()?, from.bool()?, from.int()?);
        if done {
            return Ok(results);
        }
        results.push(match op_code {
            -1 => Err(ErrorCode(from.int()?)),
            1 => Ok(Reply::Path(from.text()?)),
            2 | 13 => Ok(Reply::Done),
            4 => Ok(Reply::Data(from.buffer()?, read_stat(from)?)),
            5 => Ok(Reply::Stat(read_stat(from)?)),
            8 => Ok(Reply::Names(from.vector(Reader::text)?)),
            15 => Ok(Reply::Created(from.text()?, read_stat(from)?)),
            _ => return Err(Malformed("result of a multi: its type is not known")),
        });
    }
}
