//! Several reads of one state: all results belong to the same position of the log. The failure of one read does not
//! affect the others.

use std::borrow::Cow;

use axum::body::Body;
use axum::extract::State;
use axum::http::Uri;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use znode_store::{Data, Page, Stat, Store, View, ZPath, Zxid};

use super::extract::{HandlerResult, ReadQuery, ensure_freshness, ok, page_length, parse, query, read_body};
use super::openapi::words;
use super::problem::{Code, Problem};
use super::znode_types::{ChangedAnswer, ChildrenAnswer, StatAnswer, ZnodeAnswer};
use super::{Peer, Shared};

/// Maximum number of reads in a request. No command is applied while they are executed.
pub const MAX_READS: usize = 100;

/// Maximum number of children of all reads of a request together. Each read gets a default page at least.
const MAX_CHILDREN: usize = 10_000;

/// Maximum data of all reads of a request together, in bytes. The largest data of one znode fits, and an answer stays
/// small enough for a node to hold one for each of many callers.
const MAX_DATA_BYTES: usize = 4 * znode_store::MAX_DATA_BYTES;

/// Body of `POST /v1/read`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadsBody<'a> {
    /// Reads.
    #[serde(borrow)]
    reads: Vec<ReadBody<'a>>,
}

/// One read: `{"get": {"path": "/a"}}`.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReadBody<'a> {
    #[serde(borrow)]
    Get(OfNode<'a>),
    #[serde(borrow)]
    Children(OfChildren<'a>),
    #[serde(borrow)]
    Exists(OfNode<'a>),
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OfNode<'a> {
    #[serde(borrow)]
    #[schema(value_type = words::PathToRead)]
    path: Cow<'a, str>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OfChildren<'a> {
    #[serde(borrow)]
    #[schema(value_type = words::PathToRead)]
    path: Cow<'a, str>,
    /// Only names that begin with this.
    #[serde(borrow, default)]
    prefix: Cow<'a, str>,
    /// Last name of the page before.
    #[serde(borrow)]
    cursor: Option<Cow<'a, str>>,
    #[schema(value_type = Option<words::LimitToRead>)]
    limit: Option<usize>,
}

/// A validated read.
enum Read<'a> {
    Get(ZPath),
    Children {
        path: ZPath,
        prefix: Cow<'a, str>,
        cursor: Option<Cow<'a, str>>,
        limit: usize,
    },
    Exists(ZPath),
}

/// Result of a read in the state.
enum ReadResult {
    Get(ZPath, Data, Stat),
    Children(ZPath, Page, Stat),
    Exists(ZPath, Stat),
}

impl<'a> ReadBody<'a> {
    fn check(self) -> Result<Read<'a>, Problem> {
        Ok(match self {
            Self::Get(OfNode { path }) => Read::Get(ZPath::parse(&path)?),
            Self::Children(OfChildren {
                path,
                prefix,
                cursor,
                limit,
            }) => Read::Children {
                path: ZPath::parse(&path)?,
                prefix,
                cursor,
                limit: page_length(limit)?,
            },
            Self::Exists(OfNode { path }) => Read::Exists(ZPath::parse(&path)?),
        })
    }
}

impl Read<'_> {
    /// Executes the read; `budget` has the bytes of data that the answer may still contain.
    fn execute(self, view: View<'_>, budget: &mut usize) -> Result<ReadResult, Problem> {
        match self {
            Self::Get(path) => {
                let (data, stat) = view.get(&path)?;
                *budget = budget.checked_sub(data.len()).ok_or_else(too_much)?;
                Ok(ReadResult::Get(path, data, stat))
            }
            Self::Children {
                path,
                prefix,
                cursor,
                limit,
            } => {
                let page = view.children_page(&path, &prefix, cursor.as_deref(), limit)?;
                let stat = view.exists(&path)?;
                Ok(ReadResult::Children(path, page, stat))
            }
            Self::Exists(path) => {
                let stat = view.exists(&path)?;
                Ok(ReadResult::Exists(path, stat))
            }
        }
    }
}

fn too_much() -> Problem {
    let detail = format!("with this read the answer would exceed {MAX_DATA_BYTES} bytes of data");
    Problem::new(Code::TooLarge, detail)
}

/// Result of one read.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ReadResult)]
pub enum ResultAnswer<'a> {
    Get(ZnodeAnswer<'a>),
    Children(ChildrenOfAnswer<'a>),
    Exists(ChangedAnswer<'a>),
    Problem(&'a Problem),
}

#[derive(Serialize, ToSchema)]
pub struct ChildrenOfAnswer<'a> {
    #[schema(value_type = words::ZnodePath)]
    path: &'a str,
    stat: StatAnswer,
    #[serde(flatten)]
    children: ChildrenAnswer<'a>,
}

impl<'a> From<&'a Result<ReadResult, Problem>> for ResultAnswer<'a> {
    fn from(result: &'a Result<ReadResult, Problem>) -> Self {
        match result {
            Ok(ReadResult::Get(path, data, stat)) => Self::Get(ZnodeAnswer::new(path, data, stat)),
            Ok(ReadResult::Children(path, page, stat)) => Self::Children(ChildrenOfAnswer {
                path: path.as_str(),
                stat: stat.into(),
                children: page.into(),
            }),
            Ok(ReadResult::Exists(path, stat)) => Self::Exists(ChangedAnswer {
                path: path.as_str(),
                stat: stat.into(),
            }),
            Err(problem) => Self::Problem(problem),
        }
    }
}

#[derive(Serialize, ToSchema)]
pub struct ReadsAnswer<'a> {
    #[schema(value_type = words::Zxid)]
    zxid: u64,
    /// Result of each read, in the order of the request.
    results: Vec<ResultAnswer<'a>>,
}

/// `POST /v1/read`
pub async fn read(State(api): State<Shared>, peer: Peer, uri: Uri, body: Body) -> HandlerResult {
    let params: ReadQuery = query(&uri)?;
    let bytes = read_body(body, api.config().max_body_bytes, api.config().body_timeout).await?;
    let body: ReadsBody<'_> = parse(&bytes)?;
    if !(1..=MAX_READS).contains(&body.reads.len()) {
        return Err(Problem::bad_request(format!(
            "a request has 1 to {MAX_READS} reads"
        )));
    }
    let reads: Vec<_> = body.reads.into_iter().map(ReadBody::check).collect();
    let children = reads.iter().map(|read| match read {
        Ok(Read::Children { limit, .. }) => *limit,
        Ok(Read::Get(_) | Read::Exists(_)) | Err(_) => 0,
    });
    if children.sum::<usize>() > MAX_CHILDREN {
        return Err(Problem::bad_request(format!(
            "the counts of all reads together are at most {MAX_CHILDREN}"
        )));
    }
    ensure_freshness(&api, params.linearizable).await?;
    let caller = peer.identities();
    let read_all = |store: &Store| -> (Zxid, Vec<Result<ReadResult, Problem>>) {
        let (view, mut budget) = (store.seen_by(&caller), MAX_DATA_BYTES);
        let found = reads
            .into_iter()
            .map(|read| read.and_then(|read| read.execute(view, &mut budget)));
        (store.zxid(), found.collect())
    };
    let (zxid, found) = api.node.read(read_all);
    Ok(ok(&ReadsAnswer {
        zxid: zxid.0,
        results: found.iter().map(ResultAnswer::from).collect(),
    }))
}
