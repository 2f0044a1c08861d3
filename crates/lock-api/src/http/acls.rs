//! Routes of access control lists. They are separate from the routes of znodes, because a list requires the right to
//! read or administer the znode, and the data the right to read it.

use std::borrow::Cow;

use axum::body::Body;
use axum::extract::State;
use axum::http::Uri;
use serde::Deserialize;
use utoipa::IntoParams;
use znode_store::{Command, Op, Reply, ZPath};

use super::acl_types::{AclAnswer, SetAclBody, acl, shown};
use super::extract::{HandlerResult, ReadQuery, ensure_freshness, ok, parse, query, read_body};
use super::openapi::words;
use super::problem::Problem;
use super::url::znode_path;
use super::znode_types::{ChangedAnswer, any_version};
use super::znodes::{optional_session, propose};
use super::{Peer, Shared};

/// Prefix of the addresses of all lists.
const PREFIX: &str = "/v1/acl";

fn target(uri: &Uri) -> Result<ZPath, Problem> {
    let path: Cow<'_, str> = znode_path(uri.path().strip_prefix(PREFIX).expect("the route begins with it"))?;
    Ok(ZPath::parse(&path)?)
}

/// `GET /v1/acl/{path}`
pub async fn get(State(api): State<Shared>, peer: Peer, uri: Uri) -> HandlerResult {
    let path = target(&uri)?;
    let params: ReadQuery = query(&uri)?;
    ensure_freshness(&api, params.linearizable).await?;
    let caller = peer.identities();
    let (list, stat) = api.node.read(|store| store.seen_by(&caller).acl(&path))?;
    Ok(ok(&AclAnswer {
        path: &path,
        acl: shown(&list),
        stat: (&stat).into(),
    }))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SetQuery {
    #[serde(default = "any_version")]
    #[param(value_type = words::Version)]
    version: i32,
}

/// `PUT /v1/acl/{path}`
pub async fn set(State(api): State<Shared>, peer: Peer, uri: Uri, body: Body) -> HandlerResult {
    let path = target(&uri)?;
    let SetQuery { version } = query(&uri)?;
    let bytes = read_body(body, api.config().max_body_bytes, api.config().body_timeout).await?;
    let body: SetAclBody<'_> = parse(&bytes)?;
    let session = optional_session(body.session.as_deref())?;
    let command = Command::Write(Op::SetAcl {
        path: path.clone(),
        acl: acl(body.acl)?,
        aversion: version,
    });
    match propose(&api, &peer, session, peer.request_id(body.request_id)?, command).await? {
        Reply::AclSet(stat) => Ok(ok(&ChangedAnswer {
            path: path.as_str(),
            stat: (&stat).into(),
        })),
        other => Err(Problem::internal(format!(
            "the replacement of a list was answered by {other:?}"
        ))),
    }
}
