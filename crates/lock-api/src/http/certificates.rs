//! Routes of certificates with a role: list, set, delete. `transport-security` verifies the certificates of callers.

use axum::body::Body;
use axum::extract::State;
use axum::http::Uri;
use serde::Deserialize;
use utoipa::IntoParams;
use znode_store::{AccessCommand, Reply, RequestId};

use super::access::{change, unexpected};
use super::access_types::{CertificateAnswer, CertificateBody, CertificatesAnswer, role_name};
use super::extract::{
    HandlerResult, ensure_freshness, no_content, no_query, ok, page_length, parse, query, read_body,
};
use super::openapi::words;
use super::{Peer, Shared};

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// Last subject of the page before.
    cursor: Option<String>,
    #[param(value_type = Option<words::PageLimit>)]
    limit: Option<usize>,
    /// Wait until this node has applied everything that was committed before.
    #[serde(default)]
    linearizable: bool,
}

/// `GET /v1/certificates`
pub async fn list(State(api): State<Shared>, peer: Peer, uri: Uri) -> HandlerResult {
    let params: ListQuery = query(&uri)?;
    let limit = page_length(params.limit)?;
    ensure_freshness(&api, params.linearizable).await?;
    let caller = peer.identities();
    let all = api.node.read(|store| store.seen_by(&caller).certificates())?;
    let after = params.cursor.as_deref();
    let mut rest = all
        .iter()
        .filter(|(subject, _)| after.is_none_or(|after| &**subject > after));
    let shown = rest
        .by_ref()
        .take(limit)
        .map(|(subject, role)| CertificateAnswer {
            subject,
            role: role.as_str(),
        });
    let certificates: Vec<_> = shown.collect();
    let more = rest.next().is_some();
    Ok(ok(&CertificatesAnswer {
        next_cursor: certificates.last().filter(|_| more).map(|last| last.subject),
        certificates,
    }))
}

/// `PUT /v1/certificates`. A subject has slashes and spaces, so it is in the body.
pub async fn set(State(api): State<Shared>, peer: Peer, uri: Uri, body: Body) -> HandlerResult {
    no_query(&uri)?;
    let bytes = read_body(body, api.config().max_body_bytes, api.config().body_timeout).await?;
    let body: CertificateBody<'_> = parse(&bytes)?;
    let command = AccessCommand::MapCertificate {
        certificate: (*body.subject).into(),
        role: role_name(&body.role)?,
    };
    match change(&api, &peer, "set_certificate", body.request_id, command).await? {
        Reply::PolicyChanged => Ok(ok(&CertificateAnswer {
            subject: &body.subject,
            role: &body.role,
        })),
        other => Err(unexpected(&other)),
    }
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeleteQuery {
    /// Subject of the certificate.
    #[param(value_type = words::Subject)]
    subject: String,
    #[param(value_type = Option<words::RequestId>)]
    request_id: Option<RequestId>,
}

/// `DELETE /v1/certificates?subject=`
pub async fn delete(State(api): State<Shared>, peer: Peer, uri: Uri) -> HandlerResult {
    let DeleteQuery { subject, request_id } = query(&uri)?;
    let command = AccessCommand::UnmapCertificate(subject.into());
    match change(&api, &peer, "delete_certificate", request_id, command).await? {
        Reply::PolicyChanged => Ok(no_content()),
        other => Err(unexpected(&other)),
    }
}
