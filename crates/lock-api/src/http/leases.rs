//! Routes of leases: renew, release, get. A lease is opened by an acquire without a session (`locks.rs`).

use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::Uri;
use serde::Deserialize;
use utoipa::IntoParams;
use znode_store::{LeaseKey, RequestId};

use super::extract::{
    HandlerResult, ReadQuery, ensure_freshness, no_content, no_query, ok, parse, query, read_body,
};
use super::lease_types::{LeaseAnswer, RenewBody, lease_key};
use super::locks::locks_of;
use super::openapi::words;
use super::problem::Problem;
use super::url::{LEASES, decode};
use super::{Peer, Shared};

fn target(uri: &Uri) -> Result<LeaseKey, Problem> {
    let rest = uri.path().strip_prefix(LEASES).expect("the route begins with it");
    let segment = rest.split('/').next().unwrap_or_default();
    lease_key(&decode(segment).unwrap_or_default())
}

/// `POST /v1/leases/{lease}/renew`
pub async fn renew(State(api): State<Shared>, peer: Peer, uri: Uri, body: Body) -> HandlerResult {
    no_query(&uri)?;
    let config = api.config();
    let bytes = read_body(body, config.max_body_bytes, config.body_timeout).await?;
    let RenewBody { ttl_ms, request_id } = parse(&bytes)?;
    let request_id = peer.request_id(request_id)?;
    let ttl = ttl_ms.map(Duration::from_millis);
    let locks = locks_of(&api, &peer);
    let lease = locks.renew_lease(target(&uri)?, ttl, request_id).await?;
    Ok(ok(&LeaseAnswer::from(&lease)))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReleaseQuery {
    #[param(value_type = Option<words::RequestId>)]
    request_id: Option<RequestId>,
}

/// `DELETE /v1/leases/{lease}`
pub async fn release(State(api): State<Shared>, peer: Peer, uri: Uri) -> HandlerResult {
    let ReleaseQuery { request_id } = query(&uri)?;
    let request_id = peer.request_id(request_id)?;
    locks_of(&api, &peer)
        .release_lease(target(&uri)?, request_id)
        .await?;
    Ok(no_content())
}

/// `GET /v1/leases/{lease}`
pub async fn get(State(api): State<Shared>, peer: Peer, uri: Uri) -> HandlerResult {
    let params: ReadQuery = query(&uri)?;
    let key = target(&uri)?;
    ensure_freshness(&api, params.linearizable).await?;
    let lease = locks_of(&api, &peer).lease(key).await?;
    Ok(ok(&LeaseAnswer::from(&lease)))
}
