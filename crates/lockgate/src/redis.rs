//! Redis front end of a node: its settings, its port, and the task that serves it.

use std::net::SocketAddr;

use lock_api::http::ConnectionMetrics;
use lock_node::Node;
use lock_node::metrics::text_format::Registry;
use redis_front::{Front, Protection, RedisConfig};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use transport_security::ServerTls;

use crate::transport::is_loopback;

/// Settings of the front end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) listen: Option<String>,
    pub(crate) config: RedisConfig,
}

/// Front end of a node; `None` without a port.
pub(crate) struct Redis(Option<Front>);

impl Redis {
    /// Creates the front end of a node, if it has a port.
    pub(crate) fn new(node: &Node, config: RedisConfig, port: Option<SocketAddr>) -> Self {
        Self(port.map(|_| Front::new(node.clone(), config)))
    }

    /// Adds the metrics of commands and of the port.
    pub(crate) fn register(
        &self,
        registry: &mut Registry,
        port_metrics: &mut Vec<(&'static str, ConnectionMetrics)>,
    ) {
        if let Some(front) = &self.0 {
            port_metrics.push(("redis", front.metrics().clone()));
            front.register_metrics(registry);
        }
    }

    /// Starts the task that serves the port. It ends after its token is cancelled.
    pub(crate) fn serve(
        &self,
        port: Option<(TcpListener, SocketAddr)>,
        tls: Option<ServerTls>,
        insecure: bool,
    ) -> Option<(CancellationToken, JoinHandle<()>)> {
        let ((listener, address), front) = port.zip(self.0.clone())?;
        // Without TLS the connections are trusted if they do not leave this machine, or if the node is configured as insecure.
        let protection = match tls {
            Some(tls) => Protection::Tls(tls),
            None if insecure || is_loopback(address.ip()) => Protection::Trusted,
            None => Protection::Exposed,
        };
        let stop = CancellationToken::new();
        let serving = redis_front::serve(listener, front, protection, stop.clone());
        Some((stop, tokio::spawn(serving)))
    }

    /// Changes the bounds of the front end.
    pub(crate) fn reconfigure(&self, config: RedisConfig) {
        if let Some(front) = &self.0 {
            front.reconfigure(config);
        }
    }
}
