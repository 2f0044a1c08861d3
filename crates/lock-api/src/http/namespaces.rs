//! Routes of namespaces: list, get, set quotas, remove quotas. The state machine counts the usage and decides who may see it.

use axum::body::Body;
use axum::extract::State;
use axum::http::Uri;
use serde::Deserialize;
use utoipa::IntoParams;
use znode_store::{Command, NamespaceName, Quotas, Reply, RequestId};

use super::extract::{
    HandlerResult, ReadQuery, ensure_freshness, no_content, no_query, ok, page_length, parse, query,
    read_body,
};
use super::names_query::NamesQuery;
use super::namespace_types::{NamespaceAnswer, NamespacesAnswer, QuotasBody, namespace_name};
use super::openapi::words;
use super::problem::Problem;
use super::url::last_segment;
use super::znodes::propose;
use super::{Api, Peer, Shared};

/// `GET /v1/namespaces`
pub async fn list(State(api): State<Shared>, peer: Peer, uri: Uri) -> HandlerResult {
    let params: NamesQuery = query(&uri)?;
    let limit = page_length(params.limit)?;
    ensure_freshness(&api, params.linearizable).await?;
    let (caller, after) = (peer.identities(), params.cursor.as_deref());
    let page = api
        .node
        .read(|store| store.seen_by(&caller).namespaces_page(after, limit))?;
    Ok(ok(&NamespacesAnswer {
        namespaces: page.namespaces.iter().map(NamespaceAnswer::from).collect(),
        next_cursor: page.next_after.as_ref().map(NamespaceName::as_str),
    }))
}

/// `GET /v1/namespaces/{name}`
pub async fn get(State(api): State<Shared>, peer: Peer, uri: Uri) -> HandlerResult {
    let name = namespace_name(&last_segment(&uri)?)?;
    let params: ReadQuery = query(&uri)?;
    ensure_freshness(&api, params.linearizable).await?;
    show(&api, &peer, &name)
}

fn show(api: &Api, peer: &Peer, name: &NamespaceName) -> HandlerResult {
    let caller = peer.identities();
    let view = api.node.read(|store| store.seen_by(&caller).namespace(name))?;
    Ok(ok(&NamespaceAnswer::from(&view)))
}

/// `PUT /v1/namespaces/{name}`
pub async fn set(State(api): State<Shared>, peer: Peer, uri: Uri, body: Body) -> HandlerResult {
    let name = namespace_name(&last_segment(&uri)?)?;
    no_query(&uri)?;
    let bytes = read_body(body, api.config().max_body_bytes, api.config().body_timeout).await?;
    let body: QuotasBody = parse(&bytes)?;
    let quotas = body.quotas()?;
    change(&api, &peer, "set_quotas", body.request_id, &name, Some(quotas)).await?;
    // This node has applied the change, and answers with the usage.
    show(&api, &peer, &name)
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeleteQuery {
    #[param(value_type = Option<words::RequestId>)]
    request_id: Option<RequestId>,
}

/// `DELETE /v1/namespaces/{name}`
pub async fn delete(State(api): State<Shared>, peer: Peer, uri: Uri) -> HandlerResult {
    let name = namespace_name(&last_segment(&uri)?)?;
    let DeleteQuery { request_id } = query(&uri)?;
    change(&api, &peer, "remove_quotas", request_id, &name, None).await?;
    Ok(no_content())
}

/// Sets or removes quotas, and writes that to the audit log.
async fn change(
    api: &Api,
    peer: &Peer,
    action: &'static str,
    request_id: Option<RequestId>,
    name: &NamespaceName,
    quotas: Option<Quotas>,
) -> Result<(), Problem> {
    let command = Command::SetQuotas {
        namespace: name.clone(),
        quotas,
    };
    let entry = api.audit_log.begin(peer, action, command.to_string());
    let request_id = peer.request_id(request_id)?;
    let done = propose(api, peer, None, request_id, command).await;
    match entry.end(done)? {
        Reply::LimitsSet => Ok(()),
        other => Err(Problem::internal(format!(
            "a change of quotas was answered by {other:?}"
        ))),
    }
}
