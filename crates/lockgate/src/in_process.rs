//! Connections of the program around the node: requests of lock-client to the node's own HTTP API, over a
//! pipe in memory instead of a socket. So an embedded session has the types and rules of any other session.

use std::io;
use std::sync::Arc;

use lock_api::http::{ApiService, LiveConfig, Peer, serve_in_process};
use lock_client::LockClient;
use parking_lot::Mutex;
use tokio::io::{DuplexStream, duplex};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Capacity of a pipe in each direction, in bytes. Most requests and answers fit.
const PIPE_BYTES: usize = 16 * 1024;

/// Client of the program, with the server side of its connections.
pub(crate) struct InProcess {
    client: LockClient,
    listener: Arc<Listener>,
}

/// Listener that accepts connections until the node stops. A client that outlives the node keeps no part of
/// the node alive.
struct Listener {
    /// `None` after the stop.
    serves: Mutex<Option<Serves>>,
    connections: TaskTracker,
    /// Ends connections after the current answer.
    draining: CancellationToken,
    /// Ends connections at once.
    ended: CancellationToken,
}

/// Server of the connections.
struct Serves {
    /// Runtime of the node, whichever one the program calls from.
    runtime: Handle,
    front: ApiService,
    config: LiveConfig,
}

impl InProcess {
    /// Creates a client that `front` serves, on the current runtime.
    pub(crate) fn new(front: ApiService, config: LiveConfig) -> Self {
        let serves = Serves {
            runtime: Handle::current(),
            front,
            config,
        };
        let listener = Arc::new(Listener {
            serves: Mutex::new(Some(serves)),
            connections: TaskTracker::new(),
            draining: CancellationToken::new(),
            ended: CancellationToken::new(),
        });
        let connects = listener.clone();
        let client = LockClient::in_process(move || connects.connect())
            .build()
            .expect("a server in the same process needs no address");
        Self { client, listener }
    }

    pub(crate) fn client(&self) -> &LockClient {
        &self.client
    }

    /// Closes the sessions of the program and ends its client, while commits are still possible.
    pub(crate) async fn begin_stop(&self) {
        self.client.shut_down().await;
        self.listener.serves.lock().take();
        self.listener.draining.cancel();
    }

    /// Ends the connections. Called after the node has ended, when no answer is pending.
    pub(crate) async fn end(&self) {
        self.listener.ended.cancel();
        self.listener.connections.close();
        self.listener.connections.wait().await;
    }
}

impl Listener {
    fn connect(&self) -> io::Result<DuplexStream> {
        let serves = self.serves.lock();
        let stopped = || {
            io::Error::new(
                io::ErrorKind::ConnectionRefused,
                "the node in this program was stopped",
            )
        };
        let Serves {
            runtime,
            front,
            config,
        } = serves.as_ref().ok_or_else(stopped)?;
        let (near, far) = duplex(PIPE_BYTES);
        let serving = serve_in_process(
            far,
            Peer::in_process(),
            front.clone(),
            config,
            self.draining.clone(),
        );
        let ended = self.ended.clone().cancelled_owned();
        let served = async move {
            tokio::select! {
                () = serving => {}
                () = ended => {}
            }
        };
        self.connections.spawn_on(served, runtime);
        Ok(near)
    }
}
