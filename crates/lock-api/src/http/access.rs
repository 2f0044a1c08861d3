//! Routes of access control as a whole: the state of the cluster, the caller's identity, and securing the cluster.

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderValue, Uri};
use axum::response::Response;
use znode_store::{AccessCommand, Command, Reply, RequestId};

use super::access_types::{AccessAnswer, CallerAnswer, MadeTokenAnswer, SecureBody, grants};
use super::audit;
use super::auth::TokenText;
use super::extract::{
    HandlerResult, ReadQuery, created, ensure_freshness, no_query, ok, parse, query, read_body,
};
use super::problem::Problem;
use super::znodes::propose;
use super::{Api, Peer, Shared};

/// `GET /v1/access`
pub async fn get(State(api): State<Shared>, peer: Peer, uri: Uri) -> HandlerResult {
    let params: ReadQuery = query(&uri)?;
    ensure_freshness(&api, params.linearizable).await?;
    let caller = peer.identities();
    let answer = api.node.read(|store| {
        let view = store.seen_by(&caller);
        let (principal, role) = view.principal();
        // A rejected caller has no grants, and the answer shows that.
        let grants = view.grants().unwrap_or(Some(Vec::new()));
        AccessAnswer {
            secured: store.is_secured(),
            you: CallerAnswer::new(&principal, role, grants.as_deref()),
        }
    });
    Ok(ok(&answer))
}

/// `POST /v1/access/secure`
pub async fn secure(State(api): State<Shared>, peer: Peer, uri: Uri, body: Body) -> HandlerResult {
    no_query(&uri)?;
    let bytes = read_body(body, api.config().max_body_bytes, api.config().body_timeout).await?;
    let body: SecureBody<'_> = parse(&bytes)?;
    let (token, hash, text) = TokenText::draw();
    let command = AccessCommand::Secure {
        token,
        hash,
        description: body.description.into(),
        anonymous: body.anonymous.as_deref().map(grants).transpose()?,
    };
    // Never under the caller's `Idempotency-Key`: a repetition would get a token that was not the one created.
    let entry = api.audit_log.begin(&peer, "secure", command.to_string());
    let secured = propose(&api, &peer, None, None, Command::Access(command)).await;
    match entry.end(secured)? {
        Reply::Secured => Ok(made(&MadeTokenAnswer {
            id: token.to_string(),
            token: &text,
            role: "admin",
            expires_at: None,
        })),
        other => Err(unexpected(&other)),
    }
}

/// Changes access control, and writes it to the audit log.
pub async fn change(
    api: &Api,
    peer: &Peer,
    action: &'static str,
    request_id: Option<RequestId>,
    command: AccessCommand,
) -> Result<Reply, Problem> {
    change_for(api, peer, action, request_id, command, None).await
}

/// Like `change`, with a reason for the audit log.
pub async fn change_for(
    api: &Api,
    peer: &Peer,
    action: &'static str,
    request_id: Option<RequestId>,
    command: AccessCommand,
    reason: Option<&str>,
) -> Result<Reply, Problem> {
    let what = audit::with_reason(command.to_string(), reason)?;
    let entry = api.audit_log.begin(peer, action, what);
    let request_id = peer.request_id(request_id)?;
    let done = propose(api, peer, None, request_id, Command::Access(command)).await;
    entry.end(done)
}

/// Builds an answer that contains a token, with headers that forbid every cache to store it.
pub fn made(answer: &MadeTokenAnswer<'_>) -> Response {
    let mut response = created(&format!("/v1/tokens/{}", answer.id), answer);
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(CACHE_CONTROL, no_store);
    response
}

/// Returns the problem for a reply that the cluster never gives to a change of access control.
pub fn unexpected(reply: &Reply) -> Problem {
    Problem::internal(format!("a change of access control was answered by {reply:?}"))
}
