//! HTTP connections, from an accepted socket to the router: limits, timeouts and graceful shutdown.
//!
//! This is written on hyper, because `axum::serve` limits neither the time that a caller takes to send a head nor the
//! number of connections. It knows no route; `listener` admits connections.

use std::convert::Infallible;
use std::future::{poll_fn, ready};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use futures_util::future::{BoxFuture, Either};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use listener::{ConnectionLimiter, ConnectionMetrics, Listener, ReadDelay, Socket};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};
use transport_security::{ServerTls, Stream};

use lock_node::{Node, fail_step};

use super::config::{HttpConfig, LiveConfig};
use super::load_shedding::shed_early;
use super::lookahead::Lookahead;
use super::peer::Peer;
use super::problem::{Code, Problem};
use super::service::ApiService;

/// Maximum size of a request's head, and of one read of a body. hyper's own default is six times as large; two paths of
/// [`super::config::MAX_HTTP_PATH_BYTES`], all percent-encoded, have 48 KiB.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// `Retry-After` of a rejected connection, in seconds.
const REJECTED_RETRY_SECONDS: u64 = 1;

/// Builds the answer to a rejected connection: the problem, as a route would send it. The request was not read.
fn refusal(problem: Problem) -> Vec<u8> {
    let status = problem.code().status();
    let body = serde_json::to_string(&problem).expect("strings and numbers serialise");
    let reason = status.canonical_reason().unwrap_or_default();
    let (status, length) = (status.as_u16(), body.len());
    format!(
        "HTTP/1.1 {status} {reason}\r\ncontent-type: application/problem+json\r\ncontent-length: {length}\r\n\
         retry-after: {REJECTED_RETRY_SECONDS}\r\nconnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Serves `service` on `listener` until `shutdown` completes and the requests in progress have been answered.
///
/// After `shutdown` no connection is accepted, idle ones are closed, and busy ones after their answer. Calls that
/// wait for a lock are answered when the lock service is closed ([`crate::Locks::close`]), and watches when the
/// node is stopped, so do both while this drains. A connection that still runs after [`HttpConfig::drain_timeout`] is
/// cut off. All connections are gone when this returns.
///
/// If a caller hangs up or closes its sending side, its handler's future is dropped at once, which removes it from a
/// lock's queue. This also holds if the caller has sent more bytes after the request.
///
/// While the node given as `busy` is overloaded, requests for new resources are rejected here, before the router sees
/// them. The administration listener passes no node, so its requests are never rejected for load.
///
/// With `tls` the listener accepts TLS only, and the client certificate also identifies the caller. The task of each
/// connection makes its handshake, so a slow handshake delays no other connection.
pub async fn serve(
    listener: TcpListener,
    service: impl Into<ApiService>,
    config: impl Into<LiveConfig>,
    tls: Option<ServerTls>,
    busy: Option<Node>,
    shutdown: impl Future<Output = ()> + Send,
) {
    serve_boxed(
        listener,
        service.into(),
        config.into(),
        tls,
        busy,
        Box::pin(shutdown),
    )
    .await;
}

/// Like [`serve`], with concrete types for all parameters.
///
/// Boxed and not inlined, so that the connections' tasks, with all of hyper and of the routes, are compiled in this
/// crate alone.
#[inline(never)]
fn serve_boxed<'s>(
    listener: TcpListener,
    service: ApiService,
    live: LiveConfig,
    tls: Option<ServerTls>,
    busy: Option<Node>,
    shutdown: BoxFuture<'s, ()>,
) -> BoxFuture<'s, ()> {
    Box::pin(accept(listener, service, live, tls, busy, shutdown))
}

async fn accept(
    listener: TcpListener,
    service: ApiService,
    live: LiveConfig,
    tls: Option<ServerTls>,
    busy: Option<Node>,
    shutdown: BoxFuture<'_, ()>,
) {
    let config = live.get();
    let draining = CancellationToken::new();
    // Over TLS a readable rejection would take a handshake, so the connection is closed without one.
    let rejection = |problem: Problem| {
        if tls.is_none() {
            refusal(problem)
        } else {
            Vec::new()
        }
    };
    let settings = Listener {
        name: config.listener,
        limiter: ConnectionLimiter::new(live.connections().clone()),
        total_limit_response: rejection(Problem::new(
            Code::Unavailable,
            "this node has reached its maximum number of connections",
        )),
        address_limit_response: rejection(Problem::new(
            Code::TooManyRequests,
            "this node has reached its maximum number of connections from this address",
        )),
        drain_timeout: config.drain_timeout,
        metrics: config.meter.clone(),
    };
    let drain = draining.clone();
    let connect = move |socket, address| {
        let (service, tls, busy, drain) = (service.clone(), tls.clone(), busy.clone(), drain.clone());
        Some(connection(
            socket,
            address,
            service,
            &live.get(),
            tls,
            busy,
            drain,
        ))
    };
    let shutdown = async {
        shutdown.await;
        draining.cancel();
    };
    listener::serve(listener, settings, connect, shutdown).await;
}

/// Serves a connection of the program that the node runs in, as `peer`, until the program or `draining` ends it.
///
/// It does not count against the limit of connections, and its requests are not rejected because of other callers'
/// load.
// Boxed for the reason given at `serve_boxed`.
#[inline(never)]
pub fn serve_in_process(
    stream: DuplexStream,
    peer: Peer,
    service: ApiService,
    config: &LiveConfig,
    draining: CancellationToken,
) -> BoxFuture<'static, ()> {
    let config = config.get();
    let connection = HttpConnection {
        peer,
        service,
        busy: None,
        waited: ReadDelay::default(),
        meter: config.meter.clone(),
        header_timeout: config.header_timeout,
        first_header_timeout: None,
        draining,
    };
    Box::pin(async move {
        if let Err(error) = connection.serve(stream).await {
            debug!(%error, "http: in-process connection ended");
        }
    })
}

/// Serves one connection, from its first byte to its last.
fn connection(
    socket: Socket,
    address: SocketAddr,
    service: ApiService,
    config: &HttpConfig,
    tls: Option<ServerTls>,
    busy: Option<Node>,
    draining: CancellationToken,
) -> impl Future<Output = ()> + Send + use<> {
    let meter = config.meter.clone();
    let (header_timeout, first_header_timeout) = (config.header_timeout, config.first_header_timeout);
    let send_timeout = config.send_timeout;
    async move {
        // Answers are single small writes; Nagle's algorithm would delay each until the ACK of the last one.
        if let Err(error) = socket.tcp().set_nodelay(true) {
            debug!(%error, %address, "connection lost");
            return;
        }
        let send_timeout_ms = u32::try_from(send_timeout.as_millis()).unwrap_or(u32::MAX);
        if let Err(error) = setsockopt(socket.tcp(), sockopt::TcpUserTimeout, &send_timeout_ms) {
            debug!(%error, %address, "connection lost");
            return;
        }
        let (waited, pacer) = (socket.read_delay(), socket.pacer().clone());
        let (stream, certificate) = match tls {
            None => (Stream::Plain(socket), None),
            Some(tls) => {
                let handshake = socket.handshake(
                    async move |socket| tls.accept(socket).await,
                    |(stream, _)| stream.socket_mut(),
                );
                let accepted = tokio::select! {
                    accepted = handshake => accepted,
                    // The caller has sent no request yet.
                    () = draining.cancelled() => return,
                };
                match accepted {
                    Ok(accepted) => accepted,
                    Err(refused) if refused.is_refusal() => {
                        if let Some(others_left_out) = meter.admit_line(address.ip()) {
                            info!(%address, %refused, others_left_out, "http: rejected a caller");
                        }
                        return;
                    }
                    Err(error) => {
                        debug!(%error, %address, "no handshake");
                        return;
                    }
                }
            }
        };
        let connection = HttpConnection {
            peer: Peer::new(address, certificate.as_ref()).paced_by(&pacer),
            service,
            busy,
            waited,
            meter,
            header_timeout,
            first_header_timeout: certificate.is_none().then_some(first_header_timeout),
            draining,
        };
        if let Err(error) = connection.serve(stream).await {
            debug!(%error, %address, "connection ended");
        }
    }
}

/// One HTTP connection: its requests and their answers.
pub(super) struct HttpConnection {
    pub peer: Peer,
    pub service: ApiService,
    pub busy: Option<Node>,
    pub waited: ReadDelay,
    pub meter: ConnectionMetrics,
    pub header_timeout: Duration,
    /// Time for the first head of a caller without a client certificate.
    pub first_header_timeout: Option<Duration>,
    pub draining: CancellationToken,
}

impl HttpConnection {
    /// Serves requests until the caller or the shutdown of this node ends the connection.
    pub async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin) -> hyper::Result<()> {
        let Self {
            peer,
            service,
            busy,
            waited,
            meter,
            header_timeout,
            first_header_timeout,
            draining,
        } = self;
        let has_request = AtomicBool::new(false);
        let service = service_fn(|request: Request<Incoming>| {
            has_request.store(true, Ordering::Relaxed);
            let refused = busy
                .as_ref()
                .and_then(|node| shed_early(node, &request, waited.last()));
            let answer = match refused {
                Some(refused) => {
                    meter.count_shed_request();
                    Either::Left(ready(Ok(refused)))
                }
                None => Either::Right(service.respond(&peer, request)),
            };
            async move {
                let Ok(answer): Result<Response<Body>, Infallible> = answer.await;
                fail_step!(async "http::before_answer", |error| error);
                Ok::<_, io::Error>(answer)
            }
        });
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(header_timeout)
            .max_buf_size(MAX_HEAD_BYTES)
            // A caller that closes its sending side has gone, and must not keep its place in a lock's queue.
            .half_close(false);
        let stream = Lookahead::new(stream);
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream.clone()), service));
        let mut first_header = pin!(first_header_timeout.map(tokio::time::sleep));
        let mut draining = pin!(draining.cancelled());
        let mut drains = false;
        poll_fn(|context| {
            loop {
                stream.begin();
                if let Poll::Ready(ended) = connection.as_mut().poll(context) {
                    return Poll::Ready(ended);
                }
                if drains || draining.as_mut().poll(context).is_pending() {
                    break;
                }
                drains = true;
                connection.as_mut().graceful_shutdown();
            }
            if has_request.load(Ordering::Relaxed) {
                first_header.set(None);
            } else if let Some(timeout) = first_header.as_mut().as_pin_mut()
                && timeout.poll(context).is_ready()
            {
                debug!("http: closed a connection without a request");
                return Poll::Ready(Ok(()));
            }
            stream.poll_hang_up(context).map(|()| {
                debug!("http: a caller hung up after its next request");
                Ok(())
            })
        })
        .await
    }
}
