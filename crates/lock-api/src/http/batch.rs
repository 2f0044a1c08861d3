//! Several requests for locks in one, each with its own result: for callers with many locks, to whom the cost of an HTTP request for each
//! would matter. The requests go to the handlers that serve them alone.

use std::borrow::Cow;
use std::pin::pin;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::State;
use axum::http::{Method, Uri};
use axum::response::Response;
use futures_util::stream::FuturesOrdered;
use futures_util::{FutureExt, StreamExt};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::extract::{HandlerResult, no_query, ok, parse, read_body};
use super::problem::Problem;
use super::url::{LEASES, LOCKS, Verb, lock_and_verb};
use super::{Peer, Shared, leases, locks, sessions};

/// Maximum number of requests in a batch.
pub const MAX_BATCH_REQUESTS: usize = 128;

/// Prefix of the addresses of all sessions.
const SESSIONS: &str = "/v1/sessions/";

/// Body of `POST /v1/batch`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchBody<'a> {
    /// Requests.
    #[serde(borrow)]
    #[schema(min_items = 1, max_items = 128)]
    requests: Vec<BatchRequest<'a>>,
}

/// One request.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchRequest<'a> {
    #[serde(default)]
    method: BatchMethod,
    /// Address: `acquire` or `release` of a lock, a lease to renew (`POST`) or to release (`DELETE`), or the heartbeat of a session.
    #[serde(borrow)]
    #[schema(example = "/v1/locks/orders%2F42/acquire")]
    path: Cow<'a, str>,
    /// Body, as of the same request alone.
    #[serde(borrow)]
    #[schema(value_type = Option<Object>)]
    body: Option<&'a RawValue>,
}

/// Method of a request in a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum BatchMethod {
    #[default]
    Post,
    Delete,
}

/// Answer of `POST /v1/batch`.
#[derive(Serialize, ToSchema)]
pub struct BatchAnswer {
    /// One for each request, in the same order.
    results: Vec<BatchResult>,
}

/// Result of one request.
#[derive(Serialize, ToSchema)]
pub struct BatchResult {
    /// Status, as of the same request alone.
    #[schema(minimum = 200, maximum = 599)]
    status: u16,
    /// Body of the answer; absent with the status 204, and with a problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    body: Option<Box<RawValue>>,
    /// Problem, if the request has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Problem>)]
    problem: Option<Problem>,
}

/// `POST /v1/batch`
pub async fn batch(State(api): State<Shared>, peer: Peer, uri: Uri, body: Body) -> HandlerResult {
    no_query(&uri)?;
    if peer.has_idempotency_key() {
        return Err(Problem::bad_request(
            "a batch has no Idempotency-Key: each of its requests may have a request_id",
        ));
    }
    let config = api.config();
    let bytes = read_body(body, config.max_body_bytes, config.body_timeout).await?;
    let BatchBody { requests } = parse(&bytes)?;
    if !(1..=MAX_BATCH_REQUESTS).contains(&requests.len()) {
        return Err(Problem::bad_request(format!(
            "a batch has 1 to {MAX_BATCH_REQUESTS} requests"
        )));
    }
    let serve = |request| {
        let (api, peer, bytes) = (api.clone(), peer.clone(), &bytes);
        async move {
            match serve(api.clone(), peer.clone(), request, bytes).await {
                Ok(response) => result(response).await.unwrap_or_else(BatchResult::from),
                Err(problem) => {
                    if problem.code().is_paced() {
                        api.node.pace_refusal(peer.proven()).await;
                    }
                    problem.into()
                }
            }
        }
    };
    let results = begin_in_turn(requests, || peer.turn(), serve).await;
    Ok(ok(&BatchAnswer { results }))
}

/// Serves all requests at a time, and returns their results in order. Those of one entry of the log are decided in one go, so a request does not
/// wait for the results of earlier ones. It is begun, and its memory is taken, after its `turn`.
async fn begin_in_turn<R, T: Future<Output = ()>, F: Future>(
    requests: Vec<R>,
    turn: impl Fn() -> T,
    serve: impl Fn(R) -> F,
) -> Vec<F::Output> {
    let mut results = Vec::with_capacity(requests.len());
    let mut begun = FuturesOrdered::new();
    for (number, request) in requests.into_iter().enumerate() {
        // The first one has the turn of the batch itself.
        if number > 0 {
            let mut turn = pin!(turn());
            loop {
                tokio::select! {
                    biased;
                    () = &mut turn => break,
                    Some(result) = begun.next() => results.push(result),
                }
            }
        }
        // Boxed: it is large, and would be moved several times.
        begun.push_back(Box::pin(serve(request)));
        while let Some(Some(result)) = begun.next().now_or_never() {
            results.push(result);
        }
    }
    results.extend(begun.collect::<Vec<_>>().await);
    results
}

/// Serves one request of a batch, which came with `bytes`.
async fn serve(api: Shared, peer: Peer, request: BatchRequest<'_>, bytes: &Bytes) -> HandlerResult {
    let BatchRequest { method, path, body } = request;
    let uri: Uri = path
        .parse()
        .map_err(|_| Problem::bad_request("path is not the path of an address"))?;
    let body = match body {
        Some(body) => Body::from(bytes.slice_ref(body.get().as_bytes())),
        None => Body::empty(),
    };
    let state = State(api);
    let verb = uri.path().strip_prefix(LOCKS).map(lock_and_verb).transpose()?;
    let last = uri.path().rsplit('/').next();
    match (method, verb, last) {
        (BatchMethod::Post, Some((_, Some(Verb::Acquire | Verb::Release))), _) => {
            locks::act(state, peer, Method::POST, uri, body).await
        }
        (BatchMethod::Post, None, Some("renew")) if is_below(LEASES, &uri, 2) => {
            leases::renew(state, peer, uri, body).await
        }
        (BatchMethod::Delete, None, _) if is_below(LEASES, &uri, 1) => {
            leases::release(state, peer, uri).await
        }
        (BatchMethod::Post, None, Some("heartbeat")) if is_below(SESSIONS, &uri, 2) => {
            sessions::heartbeat(state, peer, uri, body).await
        }
        _ => Err(Problem::bad_request(
            "a batch serves acquire and release of locks, renewal and release of leases, and heartbeats",
        )),
    }
}

/// Returns whether the path has this number of segments after the prefix, none of them empty.
fn is_below(prefix: &str, uri: &Uri, count: usize) -> bool {
    let rest = uri.path().strip_prefix(prefix);
    rest.is_some_and(|rest| rest.split('/').count() == count && rest.split('/').all(|part| !part.is_empty()))
}

impl From<Problem> for BatchResult {
    fn from(problem: Problem) -> Self {
        Self {
            status: problem.code().status().as_u16(),
            body: None,
            problem: Some(problem),
        }
    }
}

/// Converts the answer to one request.
async fn result(response: Response) -> Result<BatchResult, Problem> {
    let status = response.status().as_u16();
    let unreadable =
        |error: &dyn std::fmt::Display| Problem::internal(format!("an answer cannot be read: {error}"));
    let bytes = to_bytes(response.into_body(), usize::MAX)
        .await
        .map_err(|error| unreadable(&error))?;
    let body = match bytes.is_empty() {
        true => None,
        false => Some(serde_json::from_slice(&bytes).map_err(|error| unreadable(&error))?),
    };
    Ok(BatchResult {
        status,
        body,
        problem: None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn requests_of_a_batch_are_begun_one_in_each_turn() {
        let begun = Arc::new(AtomicUsize::new(0));
        let (done, is_done) = tokio::sync::watch::channel(false);
        let serve = |number: usize| {
            let mut is_done = is_done.clone();
            begun.fetch_add(1, Ordering::Relaxed);
            async move {
                // Every third one has its result at once.
                if !number.is_multiple_of(3) {
                    is_done.wait_for(|done| *done).await.unwrap();
                }
                number
            }
        };
        let begun_so_far = begun.clone();
        let other_work = tokio::spawn(async move {
            let mut seen = vec![0];
            while *seen.last().unwrap() < MAX_BATCH_REQUESTS {
                seen.push(begun_so_far.load(Ordering::Relaxed));
                tokio::task::yield_now().await;
            }
            done.send(true).unwrap();
            seen
        });
        let results = begin_in_turn((0..MAX_BATCH_REQUESTS).collect(), tokio::task::yield_now, serve).await;
        let seen = other_work.await.unwrap();
        assert!(results.is_sorted() && results.len() == MAX_BATCH_REQUESTS);
        assert!(seen.windows(2).all(|pair| pair[1] - pair[0] <= 1), "{seen:?}");
    }
}
