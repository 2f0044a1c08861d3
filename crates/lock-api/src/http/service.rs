//! All routes as one service. The most frequent and cheapest operations take a direct path around the router, because
//! the router's work is a good part of such a request. Both paths lead through the same
//! [`middleware`](super::middleware) to the same handlers, so the direct path decides nothing. A request whose address
//! differs by one letter from the usual form goes to the router.

use std::convert::Infallible;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::http::{Method, Request};
use axum::response::Response;
use axum::routing::future::RouteFuture;
use axum::{BoxError, Extension, Router};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either};
use tower_service::Service;

use super::auth::RequiredPermission;
use super::middleware::{Endpoint, handle};
use super::{Peer, Shared, locks, sessions, terraform, znodes};
use crate::http::url::Verb;

/// Most frequent operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrequentOperation {
    Acquire,
    Release,
    Heartbeat,
    Get,
}

impl FrequentOperation {
    const ALL: [Self; 4] = [Self::Acquire, Self::Release, Self::Heartbeat, Self::Get];

    /// Recognizes a request that certainly is one of these operations: written in its usual form, at an address that
    /// the table of routes serves by a pattern.
    fn of(method: &Method, path: &str) -> Option<Self> {
        let path = path.strip_prefix("/v1/")?;
        let (family, rest) = path.split_once('/')?;
        match (family, method) {
            ("locks", &Method::POST) => match rest.rsplit_once('/')? {
                (_, "acquire") => Some(Self::Acquire),
                (_, "release") => Some(Self::Release),
                _ => None,
            },
            ("sessions", &Method::POST) => match rest.split_once('/')? {
                (session, "heartbeat") if !session.is_empty() => Some(Self::Heartbeat),
                _ => None,
            },
            ("znodes", &Method::GET) if !rest.is_empty() => Some(Self::Get),
            _ => None,
        }
    }

    /// Returns the entry in the table of routes: the address, the method, and the verb at the end.
    fn route(self) -> (&'static str, Method, Option<Verb>) {
        const LOCKS: &str = "/v1/locks/{*name_and_verb}";
        match self {
            Self::Acquire => (LOCKS, Method::POST, Some(Verb::Acquire)),
            Self::Release => (LOCKS, Method::POST, Some(Verb::Release)),
            Self::Heartbeat => ("/v1/sessions/{session}/heartbeat", Method::POST, None),
            Self::Get => ("/v1/znodes/{*path}", Method::GET, None),
        }
    }
}

/// Path of the frequent operations around the router.
#[derive(Clone)]
struct DirectPath {
    api: Shared,
    /// Requirement and operation of each, in the order of [`FrequentOperation::ALL`].
    endpoints: [Endpoint; FrequentOperation::ALL.len()],
}

impl DirectPath {
    fn new(api: Shared, routes: &[(&'static str, Method, RequiredPermission)]) -> Self {
        let endpoints = FrequentOperation::ALL.map(|operation| {
            let (address, method, verb) = operation.route();
            let route = routes.iter().find(|(at, of, _)| *at == address && *of == method);
            let (_, _, required) = route.expect("the table of routes has it");
            Endpoint {
                required: *required,
                operation: api.requests.operation_at(address, &method, verb),
            }
        });
        Self { api, endpoints }
    }

    /// Serves a frequent operation.
    async fn serve(self, operation: FrequentOperation, peer: Peer, request: Request<Body>) -> Response {
        let Self { api, endpoints } = self;
        let endpoint = endpoints[operation as usize];
        let state = State(api.clone());
        match operation {
            FrequentOperation::Acquire | FrequentOperation::Release => {
                handle(&api, endpoint, peer, request, |peer, head, body| {
                    locks::act(state, peer, head.method, head.uri, body)
                })
                .await
            }
            FrequentOperation::Heartbeat => {
                handle(&api, endpoint, peer, request, |peer, head, body| {
                    sessions::heartbeat(state, peer, head.uri, body)
                })
                .await
            }
            FrequentOperation::Get => {
                handle(&api, endpoint, peer, request, |peer, head, _| {
                    znodes::get(state, peer, head.uri)
                })
                .await
            }
        }
    }
}

/// All routes, to be served by [`serve`](super::serve()) or called without a socket. Cheap to clone.
///
/// The caller is the [`Peer`] in the request's extensions, and the owner of the token in the request.
#[derive(Clone)]
pub struct ApiService {
    router: Router,
    direct: Option<DirectPath>,
}

/// Future of an answer, by the direct path or by the router's.
type ResponseFuture = Either<BoxFuture<'static, Result<Response, Infallible>>, RouteFuture<Infallible>>;

impl ApiService {
    /// Creates the service of this API from its router and the permission that each route requires.
    pub(super) fn new(
        router: Router,
        api: Shared,
        routes: &[(&'static str, Method, RequiredPermission)],
    ) -> Self {
        // The layer for tracing is around the router, so a traced server sends all requests to the router.
        let is_traced = api.config().tracing.is_some();
        let direct = (!is_traced).then(|| DirectPath::new(api, routes));
        Self { router, direct }
    }

    /// Returns the same service with `extension` in the extensions of all requests. The router has to add it, so there
    /// is no direct path.
    pub(super) fn with_extension<T: Clone + Send + Sync + 'static>(self, extension: T) -> Self {
        self.router.layer(Extension(extension)).into()
    }

    /// Responds to a request of `peer`.
    pub(super) fn respond<B>(&self, peer: &Peer, mut request: Request<B>) -> ResponseFuture
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let operation = FrequentOperation::of(request.method(), request.uri().path());
        match (operation, &self.direct) {
            (Some(operation), Some(direct)) => {
                let served = direct
                    .clone()
                    .serve(operation, peer.clone(), request.map(Body::new));
                Either::Left(served.map(Ok).boxed())
            }
            _ => {
                request.extensions_mut().insert(peer.clone());
                if let Some(method) = terraform::standard_method(request.method(), request.uri().path()) {
                    *request.method_mut() = method;
                }
                Either::Right(self.router.clone().call(request))
            }
        }
    }
}

/// Service of any other routes, without a direct path.
impl From<Router> for ApiService {
    fn from(router: Router) -> Self {
        Self {
            // Turns the routes into services once, instead of at every request.
            router: router.with_state(()),
            direct: None,
        }
    }
}

impl<B> Service<Request<B>> for ApiService
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture {
        let peer = Peer::of(request.extensions());
        self.respond(&peer, request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusual_requests_take_the_routers_path() {
        let of = |request: &str| {
            let (method, path) = request.split_once(' ').unwrap();
            FrequentOperation::of(&method.parse().unwrap(), path)
        };
        for (request, operation) in [
            ("POST /v1/locks/a/acquire", FrequentOperation::Acquire),
            ("POST /v1/locks/a/b/acquire", FrequentOperation::Acquire),
            ("POST /v1/locks/a%2Fb/release", FrequentOperation::Release),
            ("POST /v1/sessions/1f/heartbeat", FrequentOperation::Heartbeat),
            ("GET /v1/znodes/a", FrequentOperation::Get),
            ("GET /v1/znodes/a/b", FrequentOperation::Get),
        ] {
            assert_eq!(of(request), Some(operation), "{request}");
        }
        for other in [
            "POST /v1/locks/acquire",
            "POST /v1/locks/a/%61cquire",
            "POST /v1/locks/a/acquire/",
            "POST /v1/locks/a/break",
            "PUT /v1/locks/a/acquire",
            "GET /v1/locks/a/acquire",
            "POST /v1/sessions//heartbeat",
            "POST /v1/sessions/1/2/heartbeat",
            "POST /v1/sessions/heartbeat",
            "GET /v1/sessions/1/heartbeat",
            "HEAD /v1/znodes/a",
            "GET /v1/znodes",
            "GET /v1/znodes/",
            "GET /v2/znodes/a",
            "GET /",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
