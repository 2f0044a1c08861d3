//! Routes that mirror the tree of another server: steps of the copy, and pages of the mirrored znodes for a comparison.
//! The caller is an administrator's program, which reads the other server; this server does not know that one.

use axum::body::Body;
use axum::extract::State;
use axum::http::Uri;
use serde::Deserialize;
use utoipa::IntoParams;
use znode_store::{Command, Reply, Request, Store, ZPath};

use super::extract::{HandlerResult, ensure_freshness, no_query, ok, page_length, parse, query, read_body};
use super::mirror_types::{MirrorBody, MirrorPageAnswer, MirroredAnswer};
use super::openapi::words;
use super::problem::Problem;
use super::{Peer, Shared};

/// `POST /v1/mirror`
pub async fn take_steps(State(api): State<Shared>, peer: Peer, uri: Uri, body: Body) -> HandlerResult {
    no_query(&uri)?;
    let bytes = read_body(body, api.config().max_data_body_bytes, api.config().body_timeout).await?;
    let steps = parse::<MirrorBody<'_>>(&bytes)?.steps(&api.config().paths)?;
    // The paths of a large tree would fill the audit log, so it gets their number and the first one.
    let what = match &steps[..] {
        [first, ..] => format!("{} steps, the first of them: {}", steps.len(), first.path()),
        [] => return Err(Problem::bad_request("there is at least one step")),
    };
    let entry = api.audit_log.begin(&peer, "mirror", what);
    let request = Request {
        caller: peer.identities(),
        ..Request::anonymous(Command::Mirror(steps))
    };
    let done = match api.node.propose(request).await {
        Ok(applied) => match applied.outcome {
            Ok(Reply::Mirrored(steps)) => Ok(MirroredAnswer {
                zxid: applied.zxid.0,
                steps,
            }),
            Ok(other) => Err(Problem::internal(format!(
                "mirror steps were answered by {other:?}"
            ))),
            Err(refusal) => Err(refusal.into()),
        },
        Err(error) => Err(error.into()),
    };
    Ok(ok(&entry.end(done)?))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MirrorQuery {
    /// First znode, and ancestor of all others; default: the root.
    #[param(value_type = Option<words::ZnodePath>)]
    below: Option<String>,
    /// Last path of the page before.
    #[param(value_type = Option<words::ZnodePath>)]
    cursor: Option<String>,
    #[param(value_type = Option<words::PageLimit>)]
    limit: Option<usize>,
    /// Wait until this node has applied everything that was committed before.
    #[serde(default)]
    linearizable: bool,
}

/// `GET /v1/mirror`
pub async fn get(State(api): State<Shared>, peer: Peer, uri: Uri) -> HandlerResult {
    let params: MirrorQuery = query(&uri)?;
    let below = params
        .below
        .as_deref()
        .map_or_else(|| Ok(ZPath::root()), ZPath::parse)?;
    let after = params.cursor.as_deref().map(ZPath::parse).transpose()?;
    if after.as_ref().is_some_and(|after| !is_below(after, &below)) {
        return Err(Problem::bad_request("cursor is not a path below below"));
    }
    let limit = page_length(params.limit)?;
    ensure_freshness(&api, params.linearizable).await?;
    let caller = peer.identities();
    let read_page = |store: &Store| {
        let page = store.seen_by(&caller).mirror_page(&below, after.as_ref(), limit);
        page.map(|page| (store.zxid(), store.limits(), page))
    };
    let (zxid, limits, (page, more)) = api.node.read(read_page)?;
    Ok(ok(&MirrorPageAnswer::new(
        zxid,
        limits,
        api.config().paths,
        &page,
        more,
    )))
}

fn is_below(path: &ZPath, top: &ZPath) -> bool {
    let rest = path.as_str().strip_prefix(top.as_str());
    top.is_root() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
