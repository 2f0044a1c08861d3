//! Serving a port: configures sockets, starts a task for each connection, and drains them at the end.
//! `listener` has the accept loop and the connection limits, `handshake` the protocol.

use std::io;
use std::time::Duration;

use futures_util::future::BoxFuture;
use listener::{Listener, Socket};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::front::Front;
use crate::handshake;
use crate::protection::Protection;

/// Serves clients on `listener` until `stop`, and then waits for a limited time until pending requests are
/// answered. All connections have ended when the future completes. Sessions continue, and their clients
/// resume them at other nodes. A front end may be served at several ports at once, each with its own
/// protection. They share the connection limits and counters.
///
/// Connections above a limit are closed, as in ZooKeeper; the client then tries the next server.
// Boxed and not inlined, so that the connections' tasks are compiled in this crate alone.
#[inline(never)]
pub fn serve(
    listener: TcpListener,
    front: Front,
    protection: Protection,
    stop: CancellationToken,
) -> BoxFuture<'static, ()> {
    Box::pin(serve_here(listener, front, protection, stop))
}

async fn serve_here(listener: TcpListener, front: Front, protection: Protection, stop: CancellationToken) {
    let config = front.config();
    let options = Listener {
        name: "clients of ZooKeeper",
        limiter: front.limiter().clone(),
        total_limit_response: Vec::new(),
        address_limit_response: Vec::new(),
        drain_timeout: config.drain_timeout,
        metrics: front.metrics().clone(),
    };
    let connections_end = stop.child_token();
    let (serving, stopping) = (front.clone(), connections_end.clone());
    let connect = move |socket: Socket, address| {
        if let Err(error) = prepare(socket.tcp(), serving.config().send_timeout) {
            debug!(%error, %address, "ZooKeeper front end: cannot configure the socket of a connection; it is closed");
            return None;
        }
        // The client has not authenticated, so it gets no reason; operators find it in the log.
        if serving.rejects_all_clients() {
            debug!(%address, "ZooKeeper front end: client rejected, because the cluster is not secured yet as far as this node knows");
            return None;
        }
        let client = serving.register(address);
        Some(handshake::serve(
            serving.clone(),
            client,
            socket,
            protection.clone(),
            stopping.clone(),
        ))
    };
    // Clients of a node whose state diverges from that of the others should connect to another node.
    let distrust = async {
        front.node().distrusted().await;
        connections_end.cancel();
        std::future::pending().await
    };
    tokio::select! {
        () = listener::serve(listener, options, connect, stop.cancelled()) => {}
        () = distrust => {}
    }
}

fn prepare(stream: &TcpStream, send_timeout: Duration) -> io::Result<()> {
    // Replies are single small writes; Nagle's algorithm would delay each until the previous one is
    // acknowledged.
    stream.set_nodelay(true)?;
    let send_timeout_ms = u32::try_from(send_timeout.as_millis()).unwrap_or(u32::MAX);
    setsockopt(stream, sockopt::TcpUserTimeout, &send_timeout_ms)?;
    Ok(())
}
