//! Serving the port: configures sockets, starts a task for each connection, and drains them at the end.

use std::io;
use std::time::Duration;

use futures_util::future::BoxFuture;
use listener::{Listener, Socket};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::config::{DRAIN_TIMEOUT, Protection, SEND_TIMEOUT};
use crate::connection;
use crate::front::Front;

/// Response to a connection above a limit, in Redis' words. Clients with TLS get none.
const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";

/// Time between two attempts to catch up with a leader after the start.
const CATCH_UP_INTERVAL: Duration = Duration::from_millis(100);

/// Serves clients on `listener` until `stop`, and then waits for a limited time until commands in progress are answered. All connections have
/// ended when the future completes.
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
    let response = match &protection {
        Protection::Tls(_) => Vec::new(),
        Protection::Trusted | Protection::Exposed => TOO_MANY.to_vec(),
    };
    let options = Listener {
        name: "clients of Redis",
        limiter: front.limiter().clone(),
        total_limit_response: response.clone(),
        address_limit_response: response,
        drain_timeout: DRAIN_TIMEOUT,
        metrics: front.metrics().clone(),
    };
    let connections_end = stop.child_token();
    let (serving, stopping) = (front.clone(), connections_end.clone());
    let connect = move |socket: Socket, address| {
        if let Err(error) = prepare(socket.tcp()) {
            debug!(%error, %address, "Redis front end: cannot configure the socket of a connection; it is closed");
            return None;
        }
        // The client has not authenticated, so it gets no reason; operators find it in the log.
        if serving.rejects_all_clients() {
            debug!(%address, "Redis front end: client rejected, because the cluster is not secured yet as far as this node knows");
            return None;
        }
        Some(connection::serve(
            serving.clone(),
            address,
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
    let catch_up = async {
        while front.node().caught_up_once().await.is_err() {
            tokio::time::sleep(CATCH_UP_INTERVAL).await;
        }
        front
            .answers()
            .begin(front.node().read_facts(|store| store.zxid()));
        std::future::pending().await
    };
    tokio::select! {
        () = listener::serve(listener, options, connect, stop.cancelled()) => {}
        () = distrust => {}
        () = catch_up => {}
        () = front.wakes().follow(front.node()) => {}
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    // Replies are single small writes; Nagle's algorithm would delay each until the previous one is acknowledged.
    stream.set_nodelay(true)?;
    let send_timeout_ms = u32::try_from(SEND_TIMEOUT.as_millis()).unwrap_or(u32::MAX);
    setsockopt(stream, sockopt::TcpUserTimeout, &send_timeout_ms)?;
    Ok(())
}
