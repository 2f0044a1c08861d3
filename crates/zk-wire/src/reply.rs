//! Bodies of replies.

use bytes::Bytes;

use crate::{AclEntry, CreateCall, DecodeError, ErrorCode, MultiResult, Reader, Request, Stat, Writer};

/// Body of a successful reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// No body: delete, auth, ping, closeSession, setWatches, checkWatches, removeWatches.
    Done,
    /// create and sync.
    Path(String),
    /// The other create requests.
    Created(String, Stat),
    /// exists, setData and setACL.
    Stat(Stat),
    /// getData, and reconfig (the new configuration).
    Data(Option<Bytes>, Stat),
    /// getChildren.
    Names(Vec<String>),
    /// getChildren2.
    NamesAndStat(Vec<String>, Stat),
    /// getACL.
    Acl(Vec<AclEntry>, Stat),
    /// getAllChildrenNumber, and addWatch (always 0, and mandatory).
    Number(i32),
    /// getEphemerals.
    Paths(Vec<String>),
    /// whoAmI: schemes and names.
    Identities(Vec<(String, String)>),
    /// sasl.
    Token(Option<Bytes>),
    /// multi and multiRead, even if they failed.
    Results(Vec<MultiResult>),
}

/// Body of a reply, or its error code.
pub type Outcome = Result<Reply, ErrorCode>;

impl Reply {
    /// Appends the body, without the header.
    pub fn encode(&self, to: &mut Writer<'_>) {
        match self {
            Reply::Done => {}
            Reply::Path(path) => to.text(path),
            Reply::Created(path, stat) => {
                to.text(path);
                stat.encode(to);
            }
            Reply::Stat(stat) => stat.encode(to),
            Reply::Data(data, stat) => {
                to.buffer(data.as_deref());
                stat.encode(to);
            }
            Reply::Names(texts) | Reply::Paths(texts) => to.texts(texts),
            Reply::NamesAndStat(names, stat) => {
                to.texts(names);
                stat.encode(to);
            }
            Reply::Acl(entries, stat) => {
                AclEntry::encode_list(entries, to);
                stat.encode(to);
            }
            Reply::Number(number) => to.int(*number),
            Reply::Identities(identities) => to.vector(identities, |to, (scheme, name)| {
                to.text(scheme);
                to.text(name);
            }),
            Reply::Token(token) => to.buffer(token.as_deref()),
            Reply::Results(results) => MultiResult::encode_list(results, to),
        }
    }

    /// Reads the body of the reply to `request`.
    pub fn decode(request: &Request, from: &mut Reader) -> Result<Self, DecodeError> {
        Ok(match request {
            Request::Create {
                call: CreateCall::Create,
                ..
            }
            | Request::Sync { .. } => Reply::Path(from.text()?),
            Request::Create { .. } => Reply::Created(from.text()?, Stat::decode(from)?),
            Request::Exists { .. } | Request::SetData { .. } | Request::SetAcl { .. } => {
                Reply::Stat(Stat::decode(from)?)
            }
            Request::GetData { .. } | Request::Reconfig { .. } => {
                Reply::Data(from.buffer()?, Stat::decode(from)?)
            }
            Request::GetAcl { .. } => Reply::Acl(from.vector(AclEntry::decode)?, Stat::decode(from)?),
            Request::GetChildren { .. } => Reply::Names(from.texts()?),
            Request::GetChildren2 { .. } => Reply::NamesAndStat(from.texts()?, Stat::decode(from)?),
            Request::GetAllChildrenNumber { .. } | Request::AddWatch { .. } => Reply::Number(from.int()?),
            Request::GetEphemerals { .. } => Reply::Paths(from.texts()?),
            Request::WhoAmI => Reply::Identities(from.vector(|from| Ok((from.text()?, from.text()?)))?),
            Request::Sasl { .. } => Reply::Token(from.buffer()?),
            Request::Multi(_) | Request::MultiRead(_) => Reply::Results(MultiResult::decode_list(from)?),
            Request::Delete { .. }
            | Request::Check { .. }
            | Request::Auth { .. }
            | Request::CheckWatches { .. }
            | Request::RemoveWatches { .. }
            | Request::SetWatches { .. }
            | Request::SetWatches2 { .. }
            | Request::Ping
            | Request::CloseSession => Reply::Done,
        })
    }
}
