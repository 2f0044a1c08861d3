//! Load shedding, decided from the head of a request alone, because a rejection has to cost less than the request. The
//! node decides again where a command is proposed, for the other front ends.
//!
//! While the node is overloaded, it rejects requests for new resources at once, and serves requests that keep or
//! release a resource. Large bodies and large answers have a budget each; small ones need none.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::body;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use listener::{Share, Shares};
use lock_node::admission::BUSY_RETRY;
use lock_node::{Node, Unavailable};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::config::{HttpConfig, SMALL_BODY_BYTES};
use super::http_request_id::HttpRequestId;
use super::problem::Problem;
use super::service::ApiService;
use super::{Api, Peer};

/// Unit of budgets, so that a semaphore can count gigabytes.
const UNIT_BYTES: usize = 1024;

/// Budgets for large bodies and answers.
pub struct Budgets {
    bodies: Budget,
    answers: Budget,
}

/// Budget of bytes.
struct Budget {
    /// Units that are left.
    left: Arc<Semaphore>,
    shares: Arc<Shares>,
}

/// Part of a budget until it is dropped.
struct Taken {
    _permit: OwnedSemaphorePermit,
    _share: Share,
}

impl Budget {
    fn of(bytes: usize) -> Self {
        let units = units(bytes).min(Semaphore::MAX_PERMITS);
        Self {
            left: Arc::new(Semaphore::new(units)),
            shares: Shares::of(units),
        }
    }

    /// Takes a part for a caller, unless it has its share already or too little is left.
    fn take(&self, caller: &Peer, bytes: usize) -> Option<Taken> {
        let units = u32::try_from(units(bytes)).ok()?;
        Some(Taken {
            _share: self.shares.take(caller.shared_by(), units as usize)?,
            _permit: self.left.clone().try_acquire_many_owned(units).ok()?,
        })
    }
}

impl Budgets {
    /// Creates the budgets of the configuration.
    pub fn new(config: &HttpConfig) -> Self {
        Self {
            bodies: Budget::of(config.max_large_bodies_bytes),
            answers: Budget::of(config.max_large_answers_bytes),
        }
    }
}

fn units(bytes: usize) -> usize {
    bytes.div_ceil(UNIT_BYTES)
}

/// Extension that marks requests from the administration listener.
#[derive(Debug, Clone, Copy)]
struct Administration;

/// Returns the same routes for the administration listener, where no request is rejected because of other callers'
/// load.
pub fn administration(service: ApiService) -> ApiService {
    service.with_extension(Administration)
}

/// Returns the refusal of a request that is shed by its first line alone, or `None` to continue. Under load most
/// requests end here, and each takes time from the admitted ones. So this knows neither routes nor callers, and its
/// answer is constant, but for its id.
pub fn shed_early<B>(node: &Node, request: &axum::http::Request<B>, waited: Duration) -> Option<Response> {
    static BODY: LazyLock<Bytes> = LazyLock::new(|| {
        let problem = Problem::from(Unavailable::new("this node is overloaded"));
        serde_json::to_vec(&problem)
            .expect("strings and numbers serialise")
            .into()
    });
    if is_exempt(request.method(), request.uri().path()) {
        return None;
    }
    node.admit(waited).err()?;
    let mut refusal = Response::new(Body::from(BODY.clone()));
    *refusal.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let headers = refusal.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(RETRY_AFTER, HeaderValue::from(BUSY_RETRY.as_secs()));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    HttpRequestId::next().mark(headers);
    Some(refusal)
}

/// Resources of an admitted request until it is answered.
pub struct Admitted {
    is_administration: bool,
    /// Share of the budget for large bodies.
    _body_budget: Option<Taken>,
}

/// Admits a request of `caller` or rejects it.
pub fn admit(api: &Api, caller: &Peer, request: &Request) -> Result<Admitted, Problem> {
    let is_administration = request.extensions().get::<Administration>().is_some();
    if !is_administration && !is_exempt(request.method(), request.uri().path()) {
        // Checked again for requests that did not come from a socket, or were not refused there.
        api.node.admit_caller(caller.proven())?;
    }
    let body_bytes = body_bytes(request, api.config().max_data_body_bytes);
    let body_budget = match body_bytes > SMALL_BODY_BYTES && !is_administration {
        true => Some(
            api.budgets
                .bodies
                .take(caller, body_bytes)
                .ok_or_else(budget_exhausted)?,
        ),
        false => None,
    };
    Ok(Admitted {
        is_administration,
        _body_budget: body_budget,
    })
}

/// Returns the response if the budget for large answers allows it.
pub async fn within_budget(api: &Api, caller: &Peer, admitted: Admitted, response: Response) -> Response {
    match admitted.is_administration {
        true => response,
        false => charge(response, caller, &api.budgets.answers)
            .await
            .unwrap_or_else(Problem::into_response),
    }
}

fn budget_exhausted() -> Problem {
    Unavailable::new("this node has no memory left for large requests").into()
}

/// Returns the estimated bytes of a body that the node will keep in memory. A body without a declared length counts as
/// `most`.
fn body_bytes(request: &Request, most: usize) -> usize {
    if request.body().is_end_stream() {
        return 0;
    }
    let declared = request.headers().get(CONTENT_LENGTH);
    let declared = declared.and_then(|length| length.to_str().ok()?.parse().ok());
    // A larger body is rejected without being kept.
    declared.unwrap_or(most).min(most)
}

/// Charges a large answer to the budget until its last byte is sent. Answers without a length, such as streams and
/// backups, are produced while they are sent and are not charged.
async fn charge(response: Response, caller: &Peer, budget: &Budget) -> Result<Response, Problem> {
    let length = response.body().size_hint().exact();
    let Some(length) = length.and_then(|length| usize::try_from(length).ok()) else {
        return Ok(response);
    };
    if length <= SMALL_BODY_BYTES {
        return Ok(response);
    }
    let taken = budget.take(caller, length).ok_or_else(budget_exhausted)?;
    let (head, body) = response.into_parts();
    let bytes = body::to_bytes(body, length)
        .await
        .map_err(|error| Problem::internal(format!("an answer cannot be read: {error}")))?;
    let charged = Bytes::from_owner(ChargedBytes { bytes, _taken: taken });
    Ok(Response::from_parts(head, Body::from(charged)))
}

/// Bytes of an answer, charged to the budget until the last reference is dropped.
struct ChargedBytes {
    bytes: Bytes,
    _taken: Taken,
}

impl AsRef<[u8]> for ChargedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns whether a request keeps or releases a resource, or shows the node's health. Such requests are served under
/// any load. Clients can retry all others.
fn is_exempt(method: &Method, path: &str) -> bool {
    // These documents cost no more than a rejection does.
    if matches!(
        path,
        "/healthz"
            | "/readyz"
            | "/metrics"
            | "/v1/version"
            | "/v1/openapi.json"
            | "/docs"
            | "/docs/style.css"
    ) {
        return true;
    }
    // An operator must be able to inspect a node under load.
    if path == "/" || path.starts_with("/dashboard/") || path == "/v1/events" {
        return true;
    }
    let last = path.rsplit('/').next().unwrap_or_default();
    let path = path.strip_prefix("/v1/").unwrap_or_default();
    let (family, rest) = path.split_once('/').unwrap_or((path, ""));
    match family {
        // State of the cluster, and operators' changes to it.
        "cluster" | "snapshot" | "access" | "tokens" | "roles" | "certificates" | "debug" => true,
        // Heartbeats, events (a stream of events counts as a heartbeat), and the end of a session.
        "sessions" => {
            !rest.is_empty() && (method == Method::DELETE || last == "heartbeat" || last == "events")
        }
        "locks" => match *method {
            Method::POST => matches!(last, "release" | "downgrade" | "break"),
            Method::PATCH => true,
            _ => false,
        },
        "leases" => *method != Method::GET,
        "multilock" => last == "release",
        "znodes" => method == Method::DELETE,
        "terraform" => matches!(method.as_str(), "DELETE" | "UNLOCK"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_and_renewals_are_served_under_any_load() {
        for kept in [
            "GET /healthz",
            "GET /readyz",
            "GET /metrics",
            "GET /v1/cluster",
            "GET /",
            "GET /dashboard/app.js",
            "GET /v1/events",
            "POST /v1/cluster/leader",
            "GET /v1/snapshot",
            "POST /v1/access/secure",
            "DELETE /v1/tokens/1",
            "POST /v1/sessions/1/heartbeat",
            "GET /v1/sessions/1/events",
            "DELETE /v1/sessions/1",
            "POST /v1/locks/orders/42/release",
            "POST /v1/locks/orders/downgrade",
            "POST /v1/locks/orders/break",
            "PATCH /v1/locks/orders",
            "POST /v1/leases/ls_1/renew",
            "DELETE /v1/leases/ls_1",
            "POST /v1/multilock/release",
            "DELETE /v1/znodes/locks/a/b",
            "DELETE /v1/terraform/locks/a",
            "UNLOCK /v1/terraform/locks/a",
        ] {
            let (method, path) = kept.split_once(' ').unwrap();
            assert!(is_exempt(&method.parse().unwrap(), path), "{kept}");
        }
        for new in [
            "POST /v1/sessions",
            "GET /v1/sessions",
            "GET /v1/sessions/1",
            "POST /v1/locks/orders/acquire",
            "POST /v1/locks/orders/upgrade",
            "GET /v1/locks/release",
            "POST /v1/multilock/acquire",
            "GET /v1/leases/ls_1",
            "PUT /v1/znodes/a",
            "POST /v1/txn",
            "POST /v1/read",
            "GET /v1/watch/a",
            "GET /nothing",
        ] {
            let (method, path) = new.split_once(' ').unwrap();
            assert!(!is_exempt(&method.parse().unwrap(), path), "{new}");
        }
    }

    #[tokio::test]
    async fn large_answer_is_charged_until_it_is_sent() {
        let config = HttpConfig {
            max_large_answers_bytes: 100_000,
            ..HttpConfig::default()
        };
        let budgets = Budgets::new(&config);
        let caller = Peer::in_process();
        let answer = |bytes: usize| {
            charge(
                Response::new(Body::from(vec![7; bytes])),
                &caller,
                &budgets.answers,
            )
        };
        let first = answer(60_000).await.unwrap();
        assert_eq!(answer(60_000).await.unwrap_err().code().status(), 503);
        assert!(
            answer(SMALL_BODY_BYTES).await.is_ok(),
            "small ones need no budget"
        );
        let sent = body::to_bytes(first.into_body(), usize::MAX).await.unwrap();
        assert_eq!((sent.len(), sent[59_999]), (60_000, 7));
        assert!(answer(60_000).await.is_err(), "it is still in somebody's hands");
        drop(sent);
        assert!(answer(60_000).await.is_ok());
    }
}
