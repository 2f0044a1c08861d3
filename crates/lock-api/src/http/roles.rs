//! Routes of roles: list, get, set, delete. The state machine evaluates grants.

use axum::body::Body;
use axum::extract::State;
use axum::http::Uri;
use serde::Deserialize;
use utoipa::IntoParams;
use znode_store::{
    AccessCommand, AccessRefusal, Identities, PathGrant, Refusal, Reply, RequestId, Rights, RoleName,
    RoleView, Store, ZPath,
};

use super::access::{change, unexpected};
use super::access_types::{RoleAnswer, RoleBody, RolesAnswer, grants, role_name};
use super::extract::{
    HandlerResult, ReadQuery, ensure_freshness, no_content, no_query, ok, page_length, parse, query,
    read_body,
};
use super::names_query::NamesQuery;
use super::openapi::words;
use super::url::last_segment;
use super::{Peer, Shared};

/// Returns all roles that the caller may see, including `admin`, by name.
fn all(store: &Store, caller: &Identities) -> Result<Vec<RoleView>, Refusal> {
    let mut roles = store.seen_by(caller).roles()?;
    if store.is_secured() {
        roles.push(RoleView {
            role: RoleName::admin(),
            grants: vec![PathGrant {
                prefix: ZPath::root(),
                rights: Rights::ALL,
            }],
        });
        roles.sort_by(|one, other| one.role.cmp(&other.role));
    }
    Ok(roles)
}

/// `GET /v1/roles`
pub async fn list(State(api): State<Shared>, peer: Peer, uri: Uri) -> HandlerResult {
    let params: NamesQuery = query(&uri)?;
    let limit = page_length(params.limit)?;
    ensure_freshness(&api, params.linearizable).await?;
    let caller = peer.identities();
    let roles = api.node.read(|store| all(store, &caller))?;
    let after = params.cursor.as_deref();
    let mut rest = roles
        .iter()
        .filter(|view| after.is_none_or(|after| view.role.as_str() > after));
    let page: Vec<_> = rest.by_ref().take(limit).collect();
    let more = rest.next().is_some();
    Ok(ok(&RolesAnswer {
        next_cursor: page.last().filter(|_| more).map(|last| last.role.to_string()),
        roles: page.into_iter().map(RoleAnswer::from).collect(),
    }))
}

/// `GET /v1/roles/{role}`
pub async fn get(State(api): State<Shared>, peer: Peer, uri: Uri) -> HandlerResult {
    let role = role_name(&last_segment(&uri)?)?;
    let params: ReadQuery = query(&uri)?;
    ensure_freshness(&api, params.linearizable).await?;
    let caller = peer.identities();
    let roles = api.node.read(|store| all(store, &caller))?;
    let found = roles.iter().find(|view| view.role == role);
    let no_role = || Refusal::Access(AccessRefusal::NoRole(role.clone()));
    Ok(ok(&RoleAnswer::from(found.ok_or_else(no_role)?)))
}

/// `PUT /v1/roles/{role}`
pub async fn set(State(api): State<Shared>, peer: Peer, uri: Uri, body: Body) -> HandlerResult {
    let role = role_name(&last_segment(&uri)?)?;
    no_query(&uri)?;
    let bytes = read_body(body, api.config().max_body_bytes, api.config().body_timeout).await?;
    let body: RoleBody<'_> = parse(&bytes)?;
    let grants = grants(&body.grants)?;
    let view = RoleView { role, grants };
    let command = AccessCommand::SetRole {
        role: view.role.clone(),
        grants: view.grants.clone(),
    };
    match change(&api, &peer, "set_role", body.request_id, command).await? {
        Reply::PolicyChanged => Ok(ok(&RoleAnswer::from(&view))),
        other => Err(unexpected(&other)),
    }
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeleteQuery {
    #[param(value_type = Option<words::RequestId>)]
    request_id: Option<RequestId>,
}

/// `DELETE /v1/roles/{role}`
pub async fn delete(State(api): State<Shared>, peer: Peer, uri: Uri) -> HandlerResult {
    let role = role_name(&last_segment(&uri)?)?;
    let DeleteQuery { request_id } = query(&uri)?;
    let command = AccessCommand::DeleteRole(role);
    match change(&api, &peer, "delete_role", request_id, command).await? {
        Reply::PolicyChanged => Ok(no_content()),
        other => Err(unexpected(&other)),
    }
}
