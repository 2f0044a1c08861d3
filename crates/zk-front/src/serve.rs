//! From the door to a connection's task: sockets made ready, an orderly end. It knows nothing of what clients say; who is let in is
//! `listener`'s to say.

use std::io;
use std::time::Duration;

use futures_util::future::BoxFuture;
use listener::{Listener, Socket};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tracing::debug;
use transport_security::ServerTls;

use crate::front::Front;
use crate::handshake;

/// Protection of what clients say at a port.
#[derive(Debug, Clone)]
pub enum Protection {
    /// TLS. Nothing else is spoken, and a client is also who its certificate says.
    Tls(ServerTls),
    /// No TLS, and none is needed: whoever can listen on the way is trusted.
    Trusted,
    /// No TLS, and strangers may listen on the way. Tokens and the superuser's password are refused here.
    Exposed,
}

/// Serves clients on `listener` until `stop`, and then until what they had asked is answered, for a while. All connections
/// are gone when this returns; sessions live on, for their clients to take up at other nodes. A front end may be served at several
/// ports at once, each with its own protection; places and numbers are those of all ports together.
///
/// Who finds no place is hung up on, as ZooKeeper does: its client tries the next server.
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
    let door = Listener {
        name: "clients of ZooKeeper",
        limiter: front.places().clone(),
        total_limit_response: Vec::new(),
        address_limit_response: Vec::new(),
        drain_timeout: config.drain_timeout,
        metrics: front.meter().clone(),
    };
    let connections_end = stop.child_token();
    let (serving, stopping) = (front.clone(), connections_end.clone());
    let connect = move |socket: Socket, address| {
        if let Err(error) = prepare(socket.tcp(), serving.config().send_timeout) {
            debug!(%error, %address, "connection lost");
            return None;
        }
        // It has not proven anything, so it is not told why: an operator reads it in the log.
        if serving.serves_nobody() {
            debug!(%address, "a client was not served: the cluster is not secured, or this node has not heard of it yet");
            return None;
        }
        let client = serving.list(address);
        Some(handshake::serve(
            serving.clone(),
            client,
            socket,
            protection.clone(),
            stopping.clone(),
        ))
    };
    // Clients of a node whose state differs from that of the others should go to another node.
    let distrust = async {
        front.node().distrusted().await;
        connections_end.cancel();
        std::future::pending().await
    };
    tokio::select! {
        () = listener::serve(listener, door, connect, stop.cancelled()) => {}
        () = distrust => {}
    }
}

fn prepare(stream: &TcpStream, send_timeout: Duration) -> io::Result<()> {
    // Answers are single small writes; Nagle's algorithm would hold each back for the last one's ACK.
    stream.set_nodelay(true)?;
    let send_timeout_ms = u32::try_from(send_timeout.as_millis()).unwrap_or(u32::MAX);
    setsockopt(stream, sockopt::TcpUserTimeout, &send_timeout_ms)?;
    Ok(())
}
