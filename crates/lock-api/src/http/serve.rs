//! The accept loop: connections in, requests to the router, a graceful end.
//!
//! It is written here, on hyper, because `axum::serve` bounds neither the time a caller takes to send a head
//! nor the number of connections. It knows no route.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use transport_security::{ServerTls, Stream};

use raft_node::fail_step;

use super::config::HttpConfig;
use super::peer::Peer;

/// How long the loop rests when the system has no more file descriptors: an immediate retry would spin.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// How often at most the log says that all places are taken: at every connection it would be a flood.
const CROWDED_EVERY: Duration = Duration::from_secs(10);

/// The most bytes of a request's head, and of what is read of a body at once. hyper's own default is six times
/// that; no head of ours comes near (the longest path, all percent-encoded, has 3 KiB).
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Serves `router` on `listener` until `shutdown` completes and the requests in progress have been answered.
///
/// After `shutdown` no connection is accepted, idle ones are closed, and busy ones after their answer. Calls that
/// wait for a lock are answered when the lock service is closed ([`crate::Locks::close`]) and watches when the
/// node is stopped, so do both while this drains; whatever still runs after [`HttpConfig::drain_timeout`] is
/// cut off. All connections are gone when this returns.
///
/// A caller that hangs up has its handler's future dropped at once, which takes it out of a lock's queue.
///
/// With `tls` nothing else is spoken, and a caller is also who its certificate says. Handshakes are made by the connections'
/// own tasks, so a slow one keeps nobody waiting.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    config: HttpConfig,
    tls: Option<ServerTls>,
    shutdown: impl Future<Output = ()>,
) {
    // Turns the routes into services once, instead of at every request.
    let service = TowerToHyperService::new(router.with_state(()));
    let places = Arc::new(Semaphore::new(config.max_connections));
    let draining = CancellationToken::new();
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    let mut crowded = None;

    loop {
        // The finished are taken out as they end; their results were logged where they arose.
        while connections.try_join_next().is_some() {}
        if places.available_permits() == 0 && crowded.is_none_or(|at: Instant| at.elapsed() > CROWDED_EVERY) {
            warn!(
                connections = config.max_connections,
                "all places for connections are taken, new callers wait"
            );
            crowded = Some(Instant::now());
        }
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = accept(&listener, &places) => accepted,
        };
        match accepted {
            Ok((stream, address, place)) => {
                let connection = connection(
                    stream,
                    address,
                    service.clone(),
                    &config,
                    tls.clone(),
                    draining.clone(),
                );
                connections.spawn(async move {
                    connection.await;
                    drop(place);
                });
            }
            // The caller was gone before it was accepted: its own affair.
            Err(error) if is_of_the_caller(&error) => {
                debug!(%error, "connection lost before it was accepted")
            }
            Err(error) => {
                warn!(%error, "no connection can be accepted for now");
                tokio::select! {
                    () = &mut shutdown => break,
                    () = tokio::time::sleep(ACCEPT_BACKOFF) => {}
                }
            }
        }
    }

    drop(listener);
    draining.cancel();
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(config.drain_timeout, drained).await.is_err() {
        warn!(
            connections = connections.len(),
            "connections still busy at the end of the drain are cut off"
        );
        connections.shutdown().await;
    }
}

/// Takes a place first and a connection then: who finds all places taken waits in the backlog, where it costs
/// nothing.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let place = places
        .clone()
        .acquire_owned()
        .await
        .expect("the semaphore is never closed");
    let (stream, address) = listener.accept().await?;
    Ok((stream, address, place))
}

fn is_of_the_caller(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

/// One connection, from its first byte to its last.
fn connection(
    stream: TcpStream,
    address: SocketAddr,
    service: TowerToHyperService<Router>,
    config: &HttpConfig,
    tls: Option<ServerTls>,
    draining: CancellationToken,
) -> impl Future<Output = ()> + Send + use<> {
    let header_timeout = config.header_timeout;
    let send_timeout = config.send_timeout;
    async move {
        // Answers are single small writes; Nagle's algorithm would hold each back for the last one's ACK.
        if let Err(error) = stream.set_nodelay(true) {
            debug!(%error, %address, "connection lost");
            return;
        }
        let send_timeout_ms = u32::try_from(send_timeout.as_millis()).unwrap_or(u32::MAX);
        if let Err(error) = setsockopt(&stream, sockopt::TcpUserTimeout, &send_timeout_ms) {
            debug!(%error, %address, "connection lost");
            return;
        }
        let (stream, certificate) = match tls {
            None => (Stream::Plain(stream), None),
            Some(tls) => {
                let accepted = tokio::select! {
                    accepted = tls.accept(stream) => accepted,
                    // It has asked for nothing yet.
                    () = draining.cancelled() => return,
                };
                match accepted {
                    Ok(accepted) => accepted,
                    Err(refused) if refused.is_refusal() => {
                        info!(%address, %refused, "a caller was not let in");
                        return;
                    }
                    Err(error) => {
                        debug!(%error, %address, "no handshake");
                        return;
                    }
                }
            }
        };
        let peer = Peer::new(address, certificate.as_ref());
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer.clone());
            let answer = service.call(request);
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
            // A caller that closes its sending side has gone: it must not keep its place in a queue.
            .half_close(false);
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let ended = tokio::select! {
            biased;
            ended = connection.as_mut() => ended,
            () = draining.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            debug!(%error, %address, "connection ended");
        }
    }
}
