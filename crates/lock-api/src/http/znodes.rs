//! Routes of the tree: create, get, set, delete. The state machine applies ZooKeeper's rules.

use std::borrow::Cow;

use axum::body::Body;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;
use znode_store::{
    Acl, Command, CreateMode, CreatePath, MAX_REQUEST_ID_BYTES, Op, Refusal, Reply, Request, RequestId,
    SessionId, Stat, Store, ZPath,
};

use super::acl_types::shown;
use super::extract::{
    HandlerResult, created, ensure_freshness, no_content, no_query, ok, page_length, parse, query, read_body,
    session_id,
};
use super::openapi::words;
use super::problem::Problem;
use super::url::{encode_path, znode_path};
use super::znode_types::{
    ANY_VERSION, ChangedAnswer, ChildrenAnswer, CreateBody, SetBody, ZnodeAnswer, any_version,
};
use super::{Api, Peer, Shared};

/// Prefix of the addresses of all znodes.
const PREFIX: &str = "/v1/znodes";

fn target(uri: &Uri) -> Result<Cow<'_, str>, Problem> {
    znode_path(uri.path().strip_prefix(PREFIX).expect("the route begins with it"))
}

/// Parses the session in a request, if it has one.
pub fn optional_session(text: Option<&str>) -> Result<Option<SessionId>, Problem> {
    text.map(session_id).transpose()
}

/// Proposes `command` and returns the cluster's reply.
pub async fn propose(
    api: &Api,
    peer: &Peer,
    session: Option<SessionId>,
    request_id: Option<RequestId>,
    command: Command,
) -> Result<Reply, Problem> {
    Ok(api
        .node
        .propose(Request {
            session,
            request_id,
            caller: peer.identities(),
            command,
        })
        .await?
        .outcome?)
}

/// `POST /v1/znodes/{path}`
pub async fn create(State(api): State<Shared>, peer: Peer, uri: Uri, body: Body) -> HandlerResult {
    let path = target(&uri)?;
    no_query(&uri)?;
    let bytes = read_body(body, api.config().max_data_body_bytes, api.config().body_timeout).await?;
    let mut body: CreateBody<'_> = parse(&bytes)?;
    let session = optional_session(body.session.as_deref())?;
    let request_id = peer.request_id(body.request_id.take())?;
    let op = body.op(&path)?;
    op.check_path(&api.config().paths)?;
    let command = Command::Write(op);
    match propose(&api, &peer, session, request_id, command).await? {
        Reply::Created { path, stat } => Ok(creation(&path, &stat)),
        other => Err(Problem::internal(format!("a creation was answered by {other:?}"))),
    }
}

/// Builds the answer to a creation.
fn creation(path: &ZPath, stat: &Stat) -> Response {
    let (path, stat) = (path.as_str(), stat.into());
    created(
        &format!("{PREFIX}{}", encode_path(path)),
        &ChangedAnswer { path, stat },
    )
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SetQuery {
    #[serde(default = "any_version")]
    #[param(value_type = words::Version)]
    version: i32,
    /// Create the znode if it does not exist, and its parents as containers. Not with `version`.
    #[serde(default)]
    create: bool,
}

/// `PUT /v1/znodes/{path}`
pub async fn set(State(api): State<Shared>, peer: Peer, uri: Uri, body: Body) -> HandlerResult {
    let path = target(&uri)?;
    let SetQuery { version, create } = query(&uri)?;
    if create && version != ANY_VERSION {
        return Err(Problem::bad_request(
            "create=true and version exclude each other: a znode to be created has no version",
        ));
    }
    let bytes = read_body(body, api.config().max_data_body_bytes, api.config().body_timeout).await?;
    let mut body: SetBody<'_> = parse(&bytes)?;
    let session = optional_session(body.session.as_deref())?;
    let request_id = peer.request_id(body.request_id.take())?;
    let set = body.op(&path, version)?;
    let reply = match create {
        true => set_or_create(&api, &peer, session, request_id, set).await?,
        false => propose(&api, &peer, session, request_id, Command::Write(set)).await?,
    };
    match reply {
        Reply::Created { path, stat } => Ok(creation(&path, &stat)),
        Reply::Set(stat) => Ok(ok(&ChangedAnswer {
            path: &path,
            stat: (&stat).into(),
        })),
        other => Err(Problem::internal(format!(
            "a replacement was answered by {other:?}"
        ))),
    }
}

/// Proposes the replacement `set`, and the creation of its znode if there is none. Each proposal is atomic; if others create
/// and delete the znode meanwhile, the replacement is tried a second time.
///
/// Each proposal has a request id of its own, made of the caller's. So all copies of the request get the same answers in
/// the same order, and the same result.
async fn set_or_create(
    api: &Api,
    peer: &Peer,
    session: Option<SessionId>,
    request_id: Option<RequestId>,
    set: Op,
) -> Result<Reply, Problem> {
    let Op::Set { path, data, .. } = &set else {
        return Err(Problem::internal(format!("{set:?} is no replacement")));
    };
    let create = Op::Create {
        path: CreatePath::parse(path.as_str(), false)?,
        data: data.clone(),
        acl: Acl::open(),
        mode: CreateMode::Persistent,
        parents: true,
    };
    let no_znode = Refusal::NoNode(path.clone());
    for (step, op) in [set.clone(), create, set].into_iter().enumerate() {
        op.check_path(&api.config().paths)?;
        let request = Request {
            session,
            request_id: request_id.as_ref().map(|id| id_of_step(id, step)).transpose()?,
            caller: peer.identities(),
            command: Command::Write(op),
        };
        match api.node.propose(request).await?.outcome {
            Err(Refusal::NoNode(_) | Refusal::NodeExists(_)) => {}
            outcome => return Ok(outcome?),
        }
    }
    Err(no_znode.into())
}

/// Bytes that [`id_of_step`] adds.
const STEP_BYTES: usize = 2;

/// Returns the request id of a proposal, of several for one request. The first is the caller's.
fn id_of_step(id: &RequestId, step: usize) -> Result<RequestId, Problem> {
    let most = MAX_REQUEST_ID_BYTES - STEP_BYTES;
    match step {
        _ if id.as_str().len() > most => Err(Problem::bad_request(format!(
            "with create=true a request_id has at most {most} bytes"
        ))),
        0 => Ok(id.clone()),
        step => Ok(RequestId::parse(&format!("{}+{step}", id.as_str()))?),
    }
}

/// Query of a deletion. Proxies may drop the body of `DELETE`, so all fields are in the query.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeleteQuery {
    #[serde(default = "any_version")]
    #[param(value_type = words::Version)]
    version: i32,
    /// Delete all znodes below as well.
    #[serde(default)]
    recursive: bool,
    #[param(value_type = Option<words::SessionId>)]
    session: Option<String>,
    #[param(value_type = Option<words::RequestId>)]
    request_id: Option<RequestId>,
}

/// `DELETE /v1/znodes/{path}`
pub async fn delete(State(api): State<Shared>, peer: Peer, uri: Uri) -> HandlerResult {
    let path = ZPath::parse(&target(&uri)?)?;
    let DeleteQuery {
        version,
        recursive,
        session,
        request_id,
    } = query(&uri)?;
    let session = optional_session(session.as_deref())?;
    let command = match (recursive, version) {
        (false, version) => Command::Write(Op::Delete { path, version }),
        (true, ANY_VERSION) => Command::Write(Op::DeleteRecursive { path }),
        // Checks the version of the top znode and deletes the subtree, both or neither.
        (true, version) => Command::Multi(vec![
            Op::Check {
                path: path.clone(),
                version,
            },
            Op::DeleteRecursive { path },
        ]),
    };
    let request = Request {
        session,
        request_id: peer.request_id(request_id)?,
        caller: peer.identities(),
        command,
    };
    match api.node.propose(request).await?.outcome {
        Ok(_) => Ok(no_content()),
        // The caller did not send a transaction, so the error does not mention one.
        Err(Refusal::Multi { refusal, .. }) => Err((*refusal).into()),
        Err(refusal) => Err(refusal.into()),
    }
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GetQuery {
    /// Include a page of children.
    #[serde(default)]
    children: bool,
    /// Only names that begin with this.
    prefix: Option<String>,
    /// Last name of the page before.
    cursor: Option<String>,
    #[param(value_type = Option<words::PageLimit>)]
    limit: Option<usize>,
    /// Count all znodes below.
    #[serde(default)]
    descendants: bool,
    /// Include the access control list.
    #[serde(default)]
    acl: bool,
    /// Wait until this node has applied everything that was committed before.
    #[serde(default)]
    linearizable: bool,
}

/// `GET /v1/znodes/{path}`
pub async fn get(State(api): State<Shared>, peer: Peer, uri: Uri) -> HandlerResult {
    let path = ZPath::parse(&target(&uri)?)?;
    let params: GetQuery = query(&uri)?;
    if !params.children && (params.prefix.is_some() || params.cursor.is_some() || params.limit.is_some()) {
        return Err(Problem::bad_request(
            "prefix, cursor and limit belong to children=true",
        ));
    }
    let (prefix, after) = (
        params.prefix.as_deref().unwrap_or_default(),
        params.cursor.as_deref(),
    );
    let limit = page_length(params.limit)?;
    ensure_freshness(&api, params.linearizable).await?;
    let caller = peer.identities();
    let read = |store: &Store| -> Result<_, Refusal> {
        let view = store.seen_by(&caller);
        let node = view.get(&path)?;
        let page = params
            .children
            .then(|| view.children_page(&path, prefix, after, limit));
        let descendants = params.descendants.then(|| view.descendants(&path));
        let acl = params.acl.then(|| view.acl(&path));
        Ok((
            node,
            page.transpose()?,
            descendants.transpose()?,
            acl.transpose()?,
        ))
    };
    let ((data, stat), page, descendants, acl) = match params.children || params.descendants {
        true => api.node.read(read)?,
        false => api.node.read_facts(read)?,
    };
    let mut answer = ZnodeAnswer::new(&path, &data, &stat);
    answer.descendants = descendants;
    answer.acl = acl.map(|(acl, _)| shown(&acl));
    answer.children = page.as_ref().map(ChildrenAnswer::from);
    Ok(ok(&answer))
}
