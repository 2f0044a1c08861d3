//! Network between a client and one node, which a test can interrupt: connections are forwarded, blocked or
//! reset.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// State of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Network {
    Open,
    /// No data passes, and neither side gets an error.
    Blocked,
}

/// Proxy between clients and one node.
pub struct Proxy {
    address: SocketAddr,
    network: watch::Sender<Network>,
    /// Incremented at every cut.
    cuts: watch::Sender<u64>,
    connections: Arc<AtomicU64>,
    _accepting: AbortOnDropHandle<()>,
}

impl Proxy {
    /// Starts a proxy for the node at `target`.
    pub async fn start(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (network, cuts) = (watch::Sender::new(Network::Open), watch::Sender::new(0));
        let connections = Arc::new(AtomicU64::new(0));
        let accepting = {
            let (network, cuts, connections) = (network.clone(), cuts.clone(), connections.clone());
            tokio::spawn(async move {
                loop {
                    let (client, _) = listener.accept().await.unwrap();
                    connections.fetch_add(1, Ordering::Relaxed);
                    let pass = pass(client, target.clone(), network.subscribe());
                    let mut cuts = cuts.subscribe();
                    tokio::spawn(async move {
                        tokio::select! {
                            () = pass => {}
                            // Dropped with unread data: both sides see their connection end.
                            _ = cuts.changed() => {}
                        }
                    });
                }
            })
        };
        Self {
            address,
            network,
            cuts,
            connections,
            _accepting: AbortOnDropHandle::new(accepting),
        }
    }

    /// Returns the address for clients.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Blocks all data from now on, on old and new connections, without an error for either side.
    pub fn block(&self) {
        self.network.send_replace(Network::Blocked);
    }

    /// Forwards data again, blocked data first.
    pub fn unblock(&self) {
        self.network.send_replace(Network::Open);
    }

    /// Ends all connections.
    pub fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

async fn pass(mut client: TcpStream, target: String, mut network: watch::Receiver<Network>) {
    // An error means that the proxy was dropped.
    if network
        .wait_for(|network| *network == Network::Open)
        .await
        .is_err()
    {
        return;
    }
    let Ok(mut node) = TcpStream::connect(&target).await else {
        return;
    };
    let mut copy = Box::pin(copy_bidirectional(&mut client, &mut node));
    loop {
        tokio::select! {
            biased;
            blocked = network.wait_for(|network| *network == Network::Blocked) => {
                if blocked.is_err() {
                    return;
                }
            }
            _ = &mut copy => return,
        }
        // Data that was read and not written yet waits within the copy.
        if network
            .wait_for(|network| *network == Network::Open)
            .await
            .is_err()
        {
            return;
        }
    }
}
