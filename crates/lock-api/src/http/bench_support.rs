//! Interface for the measurements of `tools/hot-paths`: functions that parse and serialize the documents of an acquire
//! and a release, and a function that serves a connection. It is not part of the API. Every function only calls the
//! production code.

use std::sync::Arc;

use axum::response::Response;
use listener::ReadDelay;
use lock_node::Node;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use znode_store::{Grant, LockName, LockWish};

use super::extract::{ok, parse};
use super::lock_types::{AcquireBody, GrantAnswer, ReleaseAnswer, ReleaseBody};
use super::problem::Problem;
use super::serve::HttpConnection;
use super::{ApiService, HttpConfig, Peer};

/// Parses the body of `acquire`.
pub fn parse_acquire(lock: LockName, body: &[u8], address: Arc<str>) -> Result<LockWish, Problem> {
    Ok(parse::<AcquireBody<'_>>(body)?.check(lock, address)?.wish)
}

/// Serializes the answer of `acquire`.
pub fn serialize_grant(grant: &Grant) -> Response {
    ok(&GrantAnswer::from(grant))
}

/// Parses the body of `release`, and returns the holder that it names.
pub fn parse_release(body: &[u8]) -> Result<String, Problem> {
    Ok(parse::<ReleaseBody<'_>>(body)?.holder.into_owned())
}

/// Serializes the answer of `release`.
pub fn serialize_release(holds: u32) -> Response {
    ok(&ReleaseAnswer { holds })
}

/// Serves one connection of `peer` as [`serve`](super::serve()) does behind the socket.
pub async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: Peer,
    service: ApiService,
    node: Node,
    config: &HttpConfig,
) -> hyper::Result<()> {
    let connection = HttpConnection {
        peer,
        service,
        busy: Some(node),
        waited: ReadDelay::default(),
        meter: config.meter.clone(),
        header_timeout: config.header_timeout,
        first_header_timeout: Some(config.first_header_timeout),
        draining: CancellationToken::new(),
    };
    connection.serve(stream).await
}
