//! Path of every request to its handler and back. The request is counted, admitted under the present load
//! ([`load_shedding`]), must address this node by one of its own names ([`origin`]), and must come from an authorized
//! caller ([`auth`]). The four steps are one function, because a separate axum layer for each would cost more than most
//! of the steps do.

use axum::body::Body;
use axum::extract::Request;
use axum::handler::Handler;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::auth::{self, RequiredPermission};
use super::extract::HandlerResult;
use super::http_request_id::HttpRequestId;
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
    peer: Peer,
    request: Request,
    handler: impl FnOnce(Peer, Parts, Body) -> F,
) -> Response {
    let mut counted = api.requests.begin(endpoint.operation);
    let id = HttpRequestId::next();
    // Pinned here: a future that is moved into the scope is copied, at some kilobytes for each request.
    let served = std::pin::pin!(async {
        match load_shedding::admit(api, &peer, &request) {
            Ok(admitted) => {
                let caller = peer.clone();
                let outcome = async {
                    origin::check(api, &request)?;
                    let (head, body) = request.into_parts();
                    let peer = peer.with_idempotency_key(&head)?;
                    let peer = auth::authenticate(api, endpoint.required, peer, &head).await?;
                    handler(peer, head, body).await
                };
                match outcome.await {
                    Ok(response) => load_shedding::within_budget(api, &caller, admitted, response).await,
                    Err(problem) => problem.into_response(),
                }
            }
            Err(problem) => problem.into_response(),
        }
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
            head.extensions.insert::<Peer>(peer);
            handler
                .call(Request::from_parts(head, body), state)
                .map(Ok)
                .boxed()
        });
        routed(api, required, request, handler)
    }
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
