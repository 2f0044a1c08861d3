//! Transactions: several changes of the tree, all or none.

use std::borrow::Cow;

use axum::body::Body;
use axum::extract::State;
use axum::http::Uri;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use znode_store::{Command, LockName, Op, Reply, Request, RequestId, Stat, ZPath, Zxid};

use super::acl_types::{EntryBody, acl};
use super::extract::{HandlerResult, no_query, ok, parse, read_body, session_id};
use super::openapi::words;
use super::problem::Problem;
use super::znode_types::{ANY_VERSION, Creation, ModeWord, StatAnswer, TextData, any_version, set_op};
use super::{Peer, Shared};

/// Maximum number of operations in a transaction. No other command is applied meanwhile.
pub const MAX_OPS: usize = 1000;

/// Body of `POST /v1/txn`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TxnBody<'a> {
    #[serde(borrow)]
    #[schema(value_type = Option<words::SessionId>)]
    session: Option<Cow<'a, str>>,
    /// Operations, in this order.
    #[serde(borrow)]
    ops: Vec<OpBody<'a>>,
    #[schema(value_type = Option<words::RequestId>)]
    request_id: Option<RequestId>,
}

/// One operation: `{"create": {"path": "/a", "data": "x"}}`.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OpBody<'a> {
    #[serde(borrow)]
    Create(CreateOp<'a>),
    #[serde(borrow)]
    Set(SetOp<'a>),
    #[serde(borrow)]
    Delete(DeleteOp<'a>),
    #[serde(borrow)]
    SetAcl(SetAclOp<'a>),
    #[serde(borrow)]
    Check(CheckOp<'a>),
    #[serde(borrow)]
    Held(HeldOp<'a>),
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateOp<'a> {
    #[serde(borrow)]
    #[schema(value_type = words::ZnodePath)]
    path: Cow<'a, str>,
    #[serde(borrow, default)]
    #[schema(value_type = Option<words::Data>)]
    data: TextData<'a>,
    #[serde(borrow)]
    #[schema(value_type = Option<words::DataBase64>)]
    data_base64: Option<Cow<'a, str>>,
    #[serde(default)]
    mode: ModeWord,
    /// Time to live, for the kinds that have one.
    #[schema(value_type = Option<words::ZnodeTtlMs>)]
    ttl_ms: Option<u64>,
    /// Access control list. Default: all rights for every caller.
    #[serde(borrow)]
    acl: Option<Vec<EntryBody<'a>>>,
    /// Create missing parents.
    #[serde(default)]
    parents: bool,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetOp<'a> {
    #[serde(borrow)]
    #[schema(value_type = words::ZnodePath)]
    path: Cow<'a, str>,
    #[serde(borrow, default)]
    #[schema(value_type = Option<words::Data>)]
    data: TextData<'a>,
    #[serde(borrow)]
    #[schema(value_type = Option<words::DataBase64>)]
    data_base64: Option<Cow<'a, str>>,
    #[serde(default = "any_version")]
    #[schema(value_type = words::Version)]
    version: i32,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteOp<'a> {
    #[serde(borrow)]
    #[schema(value_type = words::ZnodePath)]
    path: Cow<'a, str>,
    #[serde(default = "any_version")]
    #[schema(value_type = words::Version)]
    version: i32,
    /// Delete all znodes below as well.
    #[serde(default)]
    recursive: bool,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetAclOp<'a> {
    #[serde(borrow)]
    #[schema(value_type = words::ZnodePath)]
    path: Cow<'a, str>,
    /// The whole new list.
    #[serde(borrow)]
    acl: Vec<EntryBody<'a>>,
    /// Expected version of the list.
    #[serde(default = "any_version")]
    #[schema(value_type = words::Version)]
    version: i32,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckOp<'a> {
    #[serde(borrow)]
    #[schema(value_type = words::ZnodePath)]
    path: Cow<'a, str>,
    #[serde(default = "any_version")]
    #[schema(value_type = words::Version)]
    version: i32,
}

/// Condition that the transaction's session holds a lock.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeldOp<'a> {
    #[serde(borrow)]
    #[schema(value_type = words::LockName)]
    lock: Cow<'a, str>,
    #[schema(value_type = words::Position)]
    fencing_token: u64,
}

impl OpBody<'_> {
    fn op(self) -> Result<Op, Problem> {
        match self {
            Self::Create(create) => {
                let creation = Creation {
                    data: create.data,
                    data_base64: create.data_base64,
                    mode: create.mode,
                    ttl_ms: create.ttl_ms,
                    acl: create.acl,
                    parents: create.parents,
                };
                creation.op(&create.path)
            }
            Self::Set(set) => set_op(&set.path, set.data, set.data_base64, set.version),
            Self::Delete(delete) => {
                let path = ZPath::parse(&delete.path)?;
                match (delete.recursive, delete.version) {
                    (false, version) => Ok(Op::Delete { path, version }),
                    (true, ANY_VERSION) => Ok(Op::DeleteRecursive { path }),
                    (true, _) => Err(Problem::bad_request(
                        "a recursive delete has no version in a transaction, put a check before it",
                    )),
                }
            }
            Self::SetAcl(set) => Ok(Op::SetAcl {
                path: ZPath::parse(&set.path)?,
                acl: acl(set.acl)?,
                aversion: set.version,
            }),
            Self::Check(check) => Ok(Op::Check {
                path: ZPath::parse(&check.path)?,
                version: check.version,
            }),
            Self::Held(held) => Ok(Op::Held {
                lock: LockName::parse(&held.lock).map_err(Problem::bad_lock_name)?,
                fencing_token: Zxid(held.fencing_token),
            }),
        }
    }
}

/// Result of one operation.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = OpResult)]
pub enum OpAnswer {
    Created(CreatedResult),
    Set(StatResult),
    Deleted(EmptyResult),
    AclSet(StatResult),
    Checked(EmptyResult),
    Held(EmptyResult),
}

/// Result of an operation that created a znode.
#[derive(Serialize, ToSchema)]
pub struct CreatedResult {
    path: String,
    stat: StatAnswer,
}

/// Result of an operation that changed a znode.
#[derive(Serialize, ToSchema)]
pub struct StatResult {
    stat: StatAnswer,
}

impl From<&Stat> for StatResult {
    fn from(stat: &Stat) -> Self {
        let stat = StatAnswer::from(stat);
        Self { stat }
    }
}

/// Result of an operation without further data.
#[derive(Serialize, ToSchema)]
pub struct EmptyResult {}

#[derive(Serialize, ToSchema)]
pub struct TxnAnswer {
    /// Results, in the order of the request.
    results: Vec<OpAnswer>,
}

/// `POST /v1/txn`
pub async fn txn(State(api): State<Shared>, peer: Peer, uri: Uri, body: Body) -> HandlerResult {
    no_query(&uri)?;
    let bytes = read_body(body, api.config().max_data_body_bytes, api.config().body_timeout).await?;
    let body: TxnBody<'_> = parse(&bytes)?;
    if !(1..=MAX_OPS).contains(&body.ops.len()) {
        return Err(Problem::bad_request(format!(
            "a transaction has 1 to {MAX_OPS} ops"
        )));
    }
    let session = body.session.as_deref().map(session_id).transpose()?;
    let paths = api.config().paths;
    let op = |body: OpBody<'_>| {
        let op = body.op()?;
        op.check_path(&paths)?;
        Ok::<_, Problem>(op)
    };
    let ops = body.ops.into_iter().map(op).collect::<Result<Vec<_>, _>>()?;
    let request = Request {
        session,
        request_id: peer.request_id(body.request_id)?,
        caller: peer.identities(),
        command: Command::Multi(ops),
    };
    let Reply::Multi(replies) = api.node.propose(request).await?.outcome? else {
        return Err(Problem::internal(
            "a transaction was not answered by the replies of its operations",
        ));
    };
    let results = replies.into_iter().map(result).collect::<Result<Vec<_>, _>>()?;
    Ok(ok(&TxnAnswer { results }))
}

fn result(reply: Reply) -> Result<OpAnswer, Problem> {
    match reply {
        Reply::Created { path, stat } => Ok(OpAnswer::Created(CreatedResult {
            path: path.into(),
            stat: StatAnswer::from(&stat),
        })),
        Reply::Set(stat) => Ok(OpAnswer::Set(StatResult::from(&stat))),
        Reply::Deleted => Ok(OpAnswer::Deleted(EmptyResult {})),
        Reply::AclSet(stat) => Ok(OpAnswer::AclSet(StatResult::from(&stat))),
        Reply::Checked => Ok(OpAnswer::Checked(EmptyResult {})),
        Reply::Held => Ok(OpAnswer::Held(EmptyResult {})),
        other => Err(Problem::internal(format!(
            "an operation was answered by {other:?}"
        ))),
    }
}
