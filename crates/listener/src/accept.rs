//! Accept loop: accepts sockets, spawns a task for each connection, and drains the connections at shutdown.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::connection_limits::{ConnectionLimiter, LimitReached};
use crate::metrics::ConnectionMetrics;
use crate::read_pacing::{ReadPacer, Socket};

/// Pause after a failed `accept`, for example without free file descriptors: an immediate retry would spin.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Minimum time between two warnings about rejected connections. One warning for each connection would flood
/// the log.
const REJECTIONS_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of response bytes that the kernel buffers unsent for one connection. Without this limit the
/// kernel buffers megabytes for a client that never reads. All responses except lists and backups fit, and a
/// fast network sends this much in milliseconds.
const MAX_UNSENT_BYTES: u32 = 128 * 1024;

/// Configuration of one listener.
#[derive(Debug, Clone)]
pub struct Listener {
    /// Name of the listener in log lines, for example the kind of its clients.
    pub name: &'static str,
    /// Connection limits. Listeners that share one limiter share its limits.
    pub limiter: ConnectionLimiter,
    /// Response to a connection above the total limit, sent before the connection is closed. Empty where
    /// clients speak TLS.
    pub total_limit_response: Vec<u8>,
    /// Response to a connection above the limit of its address, with the same rules.
    pub address_limit_response: Vec<u8>,
    /// Maximum time that busy connections have to finish at shutdown.
    pub drain_timeout: Duration,
    /// Counters of accepted, rejected and open connections.
    pub metrics: ConnectionMetrics,
}

/// Accepts connections until `shutdown` completes, and then waits for them to finish. Connections that exceed
/// the drain timeout are aborted. All connections have ended when this function returns. `connect` returns
/// the future that serves a socket, or `None` to close the socket.
pub async fn serve<Connection>(
    listener: TcpListener,
    options: Listener,
    mut connect: impl FnMut(Socket, SocketAddr) -> Option<Connection>,
    shutdown: impl Future<Output = ()>,
) where
    Connection: Future<Output = ()> + Send + 'static,
{
    let limiter = options.limiter.clone();
    let pacer = ReadPacer::new();
    options.metrics.set_limits(limiter.limits());
    let mut connections = JoinSet::new();
    let mut rejections = RejectionLog::default();
    let mut shutdown = pin!(shutdown);
    loop {
        // Reap finished connections. Each connection logs its own errors.
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = accept(&listener, &pacer) => accepted,
        };
        match accepted {
            Ok((stream, address)) => match limiter.try_acquire(address.ip()) {
                Ok(permit) => {
                    if let Err(error) = SockRef::from(&stream).set_tcp_notsent_lowat(MAX_UNSENT_BYTES) {
                        debug!(%error, %address, "listener: cannot configure the socket of a connection; it is closed");
                        continue;
                    }
                    if let Some(connection) = connect(Socket::new(stream, &pacer), address) {
                        let open = options.metrics.connection();
                        // Boxed: a task stores its future beside the arguments it was made of, twice the memory that a connection needs.
                        let connection = Box::pin(connection);
                        connections.spawn(async move {
                            connection.await;
                            drop(open);
                            drop(permit);
                        });
                    }
                }
                Err(limit) => {
                    reject(&stream, &options, limit);
                    options.metrics.count_rejected(limit);
                    rejections.note(&options, limit, address);
                }
            },
            // The client closed the connection before it was accepted; not a fault of this node.
            Err(error) if is_client_abort(&error) => {
                debug!(%error, "listener: connection closed by the client before it was accepted")
            }
            Err(error) => {
                warn!(%error, "listener: cannot accept connections; retrying");
                tokio::select! {
                    () = &mut shutdown => break,
                    () = tokio::time::sleep(ACCEPT_BACKOFF) => {}
                }
            }
        }
    }
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(options.drain_timeout, drained)
        .await
        .is_err()
    {
        warn!(
            listener = options.name,
            connections = connections.len(),
            "listener: drain timeout exceeded; aborting the busy connections"
        );
        connections.shutdown().await;
    }
}

/// Accepts the next connection, and waits for a permit to serve it.
async fn accept(listener: &TcpListener, pacer: &ReadPacer) -> io::Result<(TcpStream, SocketAddr)> {
    let accepted = listener.accept().await?;
    pacer.permit_to_accept().await;
    Ok(accepted)
}

/// Sends the response for a reached limit if the socket takes it without blocking. A client that has already
/// sent much data may not receive it.
fn reject(stream: &TcpStream, options: &Listener, limit: LimitReached) {
    let response = match limit {
        LimitReached::Total => &options.total_limit_response,
        LimitReached::PerAddress => &options.address_limit_response,
    };
    if !response.is_empty()
        && let Err(error) = stream.try_write(response)
    {
        debug!(%error, "listener: cannot send the rejection to the client");
    }
}

/// Rate limit of the warning about rejected connections.
#[derive(Default)]
struct RejectionLog {
    rejected_since_log: u64,
    last_logged: Option<Instant>,
}

impl RejectionLog {
    fn note(&mut self, options: &Listener, reached: LimitReached, address: SocketAddr) {
        self.rejected_since_log += 1;
        if self
            .last_logged
            .is_some_and(|at| at.elapsed() < REJECTIONS_LOG_INTERVAL)
        {
            return;
        }
        let limits = options.limiter.limits().get();
        let (limit, scope) = match reached {
            LimitReached::Total => (limits.total, "total"),
            LimitReached::PerAddress => (limits.per_address, "address"),
        };
        let (listener, rejected) = (options.name, self.rejected_since_log);
        warn!(listener, rejected, limit, scope, %address, "listener: connection limit reached; rejecting connections");
        self.last_logged = Some(Instant::now());
        self.rejected_since_log = 0;
    }
}

fn is_client_abort(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use socket2::{Domain, Type};
    use tokio::io::AsyncWriteExt;
    use tokio::sync::mpsc;

    use super::*;
    use crate::connection_limits::ConnectionLimits;
    use crate::read_pacing::ACCEPTED_PER_ROUND;

    /// Size of the client's receive buffer in bytes. Linux doubles the requested size.
    const RECEIVE_BUFFER: usize = 16 * 1024;

    #[tokio::test]
    async fn many_new_connections_do_not_starve_other_tasks() {
        const CLIENTS: usize = 100;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // They wait in the kernel's backlog.
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(TcpStream::connect(address).await.unwrap());
        }
        let accepted = Cell::new(0);
        let connect = |_: Socket, _| {
            accepted.set(accepted.get() + 1);
            Some(std::future::pending())
        };
        let other = async {
            let (mut last, mut most) = (0, 0);
            while last < CLIENTS {
                tokio::task::yield_now().await;
                most = most.max(accepted.get() - last);
                last = accepted.get();
            }
            assert!(
                most <= 2 * ACCEPTED_PER_ROUND,
                "{most} connections before one step of another task"
            );
        };
        tokio::select! {
            () = serve(listener, options(CLIENTS), connect, std::future::pending()) => {}
            () = other => {}
        }
    }

    fn options(connections: usize) -> Listener {
        Listener {
            name: "test",
            limiter: ConnectionLimiter::new(ConnectionLimits {
                total: connections,
                per_address: connections,
            }),
            total_limit_response: Vec::new(),
            address_limit_response: Vec::new(),
            drain_timeout: Duration::ZERO,
            metrics: ConnectionMetrics::default(),
        }
    }

    #[tokio::test]
    async fn unsent_bytes_are_bounded_for_client_that_never_reads() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (taken, mut all_taken) = mpsc::channel(1);
        // Writes until the kernel accepts no more bytes for 200 ms.
        let connect = |mut socket: Socket, _| {
            let taken = taken.clone();
            Some(async move {
                let mut bytes = 0;
                let piece = [7; 4096];
                while let Ok(wrote) =
                    tokio::time::timeout(Duration::from_millis(200), socket.write(&piece)).await
                {
                    bytes += wrote.unwrap();
                }
                taken.send(bytes).await.unwrap();
            })
        };
        let client = async {
            let socket = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_recv_buffer_size(RECEIVE_BUFFER).unwrap();
            socket.connect(&address.into()).unwrap();
            let bytes: usize = all_taken.recv().await.unwrap();
            let limit = MAX_UNSENT_BYTES as usize + 4 * RECEIVE_BUFFER;
            assert!(
                bytes <= limit,
                "the kernel took {bytes} bytes, expected at most {limit}"
            );
        };
        tokio::select! {
            () = serve(listener, options(1), connect, std::future::pending()) => {}
            () = client => {}
        }
    }
}
