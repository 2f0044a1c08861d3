//! All routes as one service. What is asked for most often, and costs least, takes a short way: past the router, whose work is a
//! good part of such a request. Both ways lead through the same passage ([`passage`](super::passage)) to the same handlers, so
//! the short one decides nothing: what is not on it, down to the last letter of its address, the router looks at.

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
use super::passage::{Asked, pass};
use super::{Peer, Shared, locks, sessions, znodes};
use crate::http::url::Verb;

/// Most frequent operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Often {
    Acquire,
    Release,
    Heartbeat,
    Get,
}

impl Often {
    const ALL: [Self; 4] = [Self::Acquire, Self::Release, Self::Heartbeat, Self::Get];

    /// Recognizes a request that certainly is one of these: written in its usual form, at an address that the table of
    /// routes serves by a pattern.
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

    /// Returns the place in the table of routes: the address, the method, and the verb at the end.
    fn place(self) -> (&'static str, Method, Option<Verb>) {
        const LOCKS: &str = "/v1/locks/{*name_and_verb}";
        match self {
            Self::Acquire => (LOCKS, Method::POST, Some(Verb::Acquire)),
            Self::Release => (LOCKS, Method::POST, Some(Verb::Release)),
            Self::Heartbeat => ("/v1/sessions/{session}/heartbeat", Method::POST, None),
            Self::Get => ("/v1/znodes/{*path}", Method::GET, None),
        }
    }
}

/// The short way, where there is one.
#[derive(Clone)]
struct Short {
    api: Shared,
    /// Requirement and operation of each, in the order of [`Often::ALL`].
    asked: [Asked; Often::ALL.len()],
}

impl Short {
    fn new(api: Shared, routes: &[(&'static str, Method, RequiredPermission)]) -> Self {
        let asked = Often::ALL.map(|often| {
            let (address, method, verb) = often.place();
            let route = routes.iter().find(|(at, of, _)| *at == address && *of == method);
            let (_, _, required) = route.expect("the table of routes has it");
            Asked {
                required: *required,
                operation: api.requests.operation_at(address, &method, verb),
            }
        });
        Self { api, asked }
    }

    /// Serves one of them.
    async fn serve(self, often: Often, peer: Peer, request: Request<Body>) -> Response {
        let Self { api, asked } = self;
        let asked = asked[often as usize];
        let state = State(api.clone());
        match often {
            Often::Acquire | Often::Release => {
                pass(&api, asked, peer, request, |peer, head, body| {
                    locks::act(state, peer, head.method, head.uri, body)
                })
                .await
            }
            Often::Heartbeat => {
                pass(&api, asked, peer, request, |peer, head, body| {
                    sessions::heartbeat(state, peer, head.uri, body)
                })
                .await
            }
            Often::Get => {
                pass(&api, asked, peer, request, |peer, head, _| {
                    znodes::look(state, peer, head.uri)
                })
                .await
            }
        }
    }
}

/// All routes, to be served by [`serve`](super::serve()) or called without a socket. Cheap to clone.
///
/// The caller is the [`Peer`] among the request's extensions, and the owner of the token in the request.
#[derive(Clone)]
pub struct Front {
    router: Router,
    short: Option<Short>,
}

/// Future of an answer, by the short path or by the router's.
type Answering = Either<BoxFuture<'static, Result<Response, Infallible>>, RouteFuture<Infallible>>;

impl Front {
    /// The routes of this API, and what each of them requires.
    pub(super) fn new(
        router: Router,
        api: Shared,
        routes: &[(&'static str, Method, RequiredPermission)],
    ) -> Self {
        // What is traced is so around the router.
        let is_traced = api.config().tracing.is_some();
        let short = (!is_traced).then(|| Short::new(api, routes));
        Self { router, short }
    }

    /// The same with something in the extensions of all requests, for which the router has to see them all.
    pub(super) fn with_extension<T: Clone + Send + Sync + 'static>(self, extension: T) -> Self {
        self.router.layer(Extension(extension)).into()
    }

    /// Answers to a request of `peer`.
    pub(super) fn answer<B>(&self, peer: &Peer, mut request: Request<B>) -> Answering
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let often = Often::of(request.method(), request.uri().path());
        match (often, &self.short) {
            (Some(often), Some(short)) => {
                let served = short.clone().serve(often, peer.clone(), request.map(Body::new));
                Either::Left(served.map(Ok).boxed())
            }
            _ => {
                request.extensions_mut().insert(peer.clone());
                Either::Right(self.router.clone().call(request))
            }
        }
    }
}

/// Any other routes, which have no short way.
impl From<Router> for Front {
    fn from(router: Router) -> Self {
        Self {
            // Turns the routes into services once, instead of at every request.
            router: router.with_state(()),
            short: None,
        }
    }
}

impl<B> Service<Request<B>> for Front
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Answering {
        let peer = Peer::of(request.extensions());
        self.answer(&peer, request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusual_requests_take_the_routers_path() {
        let of = |request: &str| {
            let (method, path) = request.split_once(' ').unwrap();
            Often::of(&method.parse().unwrap(), path)
        };
        for (request, often) in [
            ("POST /v1/locks/a/acquire", Often::Acquire),
            ("POST /v1/locks/a/b/acquire", Often::Acquire),
            ("POST /v1/locks/graph/acquire", Often::Acquire),
            ("POST /v1/locks/a%2Fb/release", Often::Release),
            ("POST /v1/sessions/1f/heartbeat", Often::Heartbeat),
            ("GET /v1/znodes/a", Often::Get),
            ("GET /v1/znodes/a/b", Often::Get),
        ] {
            assert_eq!(of(request), Some(often), "{request}");
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
