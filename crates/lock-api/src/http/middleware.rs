//! Path of every request to its handler and back. The request is counted, admitted under the present load
//! ([`load_shedding`]), must address this node by one of its own names ([`origin`]), and must come from an authorized
//! caller ([`auth`]). The four steps are one function, because a separate axum layer for each would cost more than most
//! of the steps do.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::handler::Handler;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use nix::time::{ClockId, clock_gettime};

use super::auth::{self, RequiredPermission};
use super::extract::HandlerResult;
use super::http_request_id::HttpRequestId;
use super::problem::Code;
use super::{Peer, Shared, load_shedding, origin};

/// Requirement and operation of a route.
#[derive(Debug, Clone, Copy)]
pub struct Endpoint {
    pub required: RequiredPermission,
    pub operation: usize,
}

/// Passes a request of `peer` through all checks to `handler`, and returns its response. The handler gets the caller
/// with all proven identities.
pub async fn handle<F: Future<Output = HandlerResult>>(
    api: &Shared,
    endpoint: Endpoint,
    mut peer: Peer,
    request: Request,
    handler: impl FnOnce(Peer, Parts, Body) -> F,
) -> Response {
    let mut counted = api.requests.begin(endpoint.operation);
    let id = HttpRequestId::next();
    // Pinned here: a future that is moved into the scope is copied, at some kilobytes for each request.
    let served = pin!(async {
        let response = match load_shedding::admit(api, &peer, &request) {
            Ok(admitted) => {
                let outcome = async {
                    origin::check(api, &request)?;
                    let (head, body) = request.into_parts();
                    peer.read_idempotency_key(&head)?;
                    auth::authenticate(api, endpoint.required, &mut peer, &head).await?;
                    handler(peer.clone(), head, body).await
                };
                match outcome.await {
                    Ok(response) => {
                        let worked = response.extensions().get().copied();
                        let response = load_shedding::within_budget(api, &peer, admitted, response).await;
                        // The wait follows the charge, because the response is in memory meanwhile.
                        if let Some(Worked(worked)) = worked {
                            api.node.pace_long_request(peer.proven(), worked).await;
                        }
                        response
                    }
                    Err(problem) => problem.into_response(),
                }
            }
            Err(problem) => problem.into_response(),
        };
        // The problems of handlers behind the router are responses already.
        if response
            .extensions()
            .get()
            .is_some_and(|code: &Code| code.is_paced())
        {
            api.node.pace_refusal(peer.proven()).await;
        }
        response
    });
    let mut response = id.scope(served).await;
    id.mark(response.headers_mut());
    origin::set_security_headers(response.headers_mut());
    counted.answer(&response);
    response
}

/// Handler for the router, behind [`handle`], with the permission that it requires.
#[derive(Clone)]
pub struct Guarded<H> {
    pub required: RequiredPermission,
    pub handler: H,
}

impl<H, T> Handler<T, Shared> for Guarded<H>
where
    H: Handler<T, Shared>,
    T: 'static,
{
    type Future = BoxFuture<'static, Response>;

    fn call(self, request: Request, api: Shared) -> Self::Future {
        let Self { required, handler } = self;
        let state = api.clone();
        // Boxed, so that all handlers have one type: `handle` is then compiled once for the router, and not once for
        // each route.
        let handler: RoutedHandler = Box::new(move |peer, mut head, body| {
            head.extensions.insert(peer);
            Box::pin(async move {
                let served = handler.call(Request::from_parts(head, body), state.clone());
                let (mut response, worked) = timed(served).await;
                response.extensions_mut().insert(Worked(worked));
                Ok(response)
            })
        });
        routed(api, required, request, handler)
    }
}

/// Extension of a response: for how long its handler used the processor.
#[derive(Debug, Clone, Copy)]
struct Worked(Duration);

/// Returns the result of a future, and for how long it used the processor.
async fn timed<F: Future>(future: F) -> (F::Output, Duration) {
    let (mut future, mut worked) = (pin!(future), Duration::ZERO);
    let output = poll_fn(|context| {
        let began = thread_time();
        let polled = future.as_mut().poll(context);
        worked += thread_time().saturating_sub(began);
        polled
    });
    (output.await, worked)
}

/// Returns the processor time of this thread. The time of other programs in between is not in it.
fn thread_time() -> Duration {
    // Without this clock no request counts as long.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Handler behind the router, with its extractors.
type RoutedHandler = Box<dyn FnOnce(Peer, Parts, Body) -> BoxFuture<'static, HandlerResult> + Send>;

/// Takes a request from the router through [`handle`].
fn routed(
    api: Shared,
    required: RequiredPermission,
    request: Request,
    handler: RoutedHandler,
) -> BoxFuture<'static, Response> {
    Box::pin(async move {
        let operation = api.requests.operation(&request);
        let peer = Peer::of(request.extensions());
        handle(&api, Endpoint { required, operation }, peer, request, handler).await
    })
}
