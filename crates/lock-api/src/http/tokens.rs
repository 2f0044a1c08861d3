//! Routes of tokens: list, create, revoke. Only the answer that creates a token contains its text.

use axum::body::Body;
use axum::extract::State;
use axum::http::Uri;
use serde::Deserialize;
use utoipa::IntoParams;
use znode_store::{AccessCommand, NewToken, Reply, RequestId, TokenId};

use super::access::{change, change_for, made, unexpected};
use super::access_types::{MadeTokenAnswer, TokenAnswer, TokenBody, TokensAnswer, role_name};
use super::auth::TokenText;
use super::extract::{
    HandlerResult, Timestamp, ensure_freshness, no_content, no_query, ok, page_length, parse, query,
    read_body,
};
use super::openapi::words;
use super::problem::Problem;
use super::url::last_segment;
use super::{Peer, Shared};

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// Last id of the page before.
    #[param(value_type = Option<words::TokenId>)]
    cursor: Option<String>,
    #[param(value_type = Option<words::PageLimit>)]
    limit: Option<usize>,
    /// Wait until this node has applied everything that was committed before.
    #[serde(default)]
    linearizable: bool,
}

/// `GET /v1/tokens`
pub async fn list(State(api): State<Shared>, peer: Peer, uri: Uri) -> HandlerResult {
    let params: ListQuery = query(&uri)?;
    let limit = page_length(params.limit)?;
    let after = params.cursor.as_deref().map(token_id).transpose()?;
    ensure_freshness(&api, params.linearizable).await?;
    let caller = peer.identities();
    let all = api.node.read(|store| store.seen_by(&caller).tokens())?;
    let mut rest = all
        .iter()
        .filter(|token| after.is_none_or(|after| token.id > after));
    let tokens: Vec<_> = rest.by_ref().take(limit).collect();
    let more = rest.next().is_some();
    Ok(ok(&TokensAnswer {
        next_cursor: tokens.last().filter(|_| more).map(|last| last.id.to_string()),
        tokens: tokens.into_iter().map(TokenAnswer::from).collect(),
    }))
}

/// `POST /v1/tokens`
///
/// A repetition under the same request id is rejected, because the server does not keep the text of the first token.
pub async fn create(State(api): State<Shared>, peer: Peer, uri: Uri, body: Body) -> HandlerResult {
    no_query(&uri)?;
    let bytes = read_body(body, api.config().max_body_bytes, api.config().body_timeout).await?;
    let body: TokenBody<'_> = parse(&bytes)?;
    let role = role_name(&body.role)?;
    let (id, hash, text) = TokenText::draw();
    let expires_at_ms = body.expires_in_ms.map(|ms| api.node.now_ms().saturating_add(ms));
    let command = AccessCommand::CreateToken(NewToken {
        id,
        hash,
        role: role.clone(),
        description: body.description.into(),
        expires_at_ms,
    });
    match change(&api, &peer, "create_token", body.request_id, command).await? {
        Reply::TokenCreated(own) if own == id => Ok(made(&MadeTokenAnswer {
            id: id.to_string(),
            token: &text,
            role: role.as_str(),
            expires_at: expires_at_ms.map(Timestamp),
        })),
        other => Err(unexpected(&other)),
    }
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RevokeQuery {
    #[param(value_type = Option<words::RequestId>)]
    request_id: Option<RequestId>,
    /// Reason, for the audit log.
    #[param(value_type = Option<words::Reason>)]
    reason: Option<String>,
}

/// `DELETE /v1/tokens/{id}`
pub async fn revoke(State(api): State<Shared>, peer: Peer, uri: Uri) -> HandlerResult {
    let id = token_id(&last_segment(&uri)?)?;
    let RevokeQuery { request_id, reason } = query(&uri)?;
    let command = AccessCommand::RevokeToken(id);
    match change_for(
        &api,
        &peer,
        "revoke_token",
        request_id,
        command,
        reason.as_deref(),
    )
    .await?
    {
        Reply::TokenRevoked => Ok(no_content()),
        other => Err(unexpected(&other)),
    }
}

/// Parses the id of a token. A malformed id is reported as an unknown token.
fn token_id(text: &str) -> Result<TokenId, Problem> {
    text.parse().map_err(|_| Problem::unknown_token(text))
}
