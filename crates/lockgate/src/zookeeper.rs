//! ZooKeeper front end of a node: its settings, its two ports, and the tasks that serve them.

use std::io;
use std::net::SocketAddr;

use lock_api::http::{ConnectionMetrics, Tracing};
use lock_node::Node;
use lock_node::metrics::text_format::Registry;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use transport_security::ServerTls;
use zk_front::{Front, Ports, Protection, ZkConfig};

use crate::start_error::StartError;
use crate::transport::is_loopback;

/// Settings of the front end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) listen: Option<String>,
    /// Address without TLS beside `listen`.
    pub(crate) plain_listen: Option<String>,
    pub(crate) config: ZkConfig,
}

/// Ports that are bound, and not served yet.
pub(crate) struct Bound {
    main: Option<(TcpListener, SocketAddr)>,
    plain: Option<(TcpListener, SocketAddr)>,
}

/// Addresses of the ports.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Addresses {
    pub(crate) main: Option<SocketAddr>,
    pub(crate) plain: Option<SocketAddr>,
}

/// Front end of a node; `None` if it has no port.
pub(crate) struct ZooKeeper(Option<Front>);

impl Settings {
    /// Returns the configured addresses.
    pub(crate) fn listens(&self) -> [Option<&str>; 2] {
        [self.listen.as_deref(), self.plain_listen.as_deref()]
    }

    /// Applies the settings that all front ends share.
    pub(crate) fn set_common(&mut self, secured_only: bool, tracing: Option<Tracing>) {
        self.config.secured_only = secured_only;
        self.config.tracing = tracing;
    }

    /// Binds the ports.
    pub(crate) async fn bind(&self) -> Result<Bound, StartError> {
        Ok(Bound {
            main: bind(self.listen.as_deref()).await?,
            plain: bind(self.plain_listen.as_deref()).await?,
        })
    }
}

async fn bind(address: Option<&str>) -> Result<Option<(TcpListener, SocketAddr)>, StartError> {
    let Some(address) = address else {
        return Ok(None);
    };
    let bound = async || -> io::Result<_> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    bound().await.map(Some).map_err(|source| StartError::ZooKeeper {
        address: address.to_owned(),
        source,
    })
}

impl Bound {
    pub(crate) fn addresses(&self) -> Addresses {
        let address = |port: &Option<(TcpListener, SocketAddr)>| port.as_ref().map(|(_, address)| *address);
        Addresses {
            main: address(&self.main),
            plain: address(&self.plain),
        }
    }
}

impl ZooKeeper {
    /// Creates the front end of a node, if it has a port.
    pub(crate) fn new(node: &Node, settings: Settings, ports: Addresses, has_tls: bool) -> Self {
        let Addresses { main, plain } = ports;
        let front = main.or(plain).map(|_| {
            let ports = match has_tls {
                true => Ports { plain, tls: main },
                false => Ports {
                    plain: main.or(plain),
                    tls: None,
                },
            };
            Front::new(node.clone(), settings.config, ports)
        });
        Self(front)
    }

    /// Adds the metrics of the front end and of its ports.
    pub(crate) fn register(
        &self,
        registry: &mut Registry,
        port_metrics: &mut Vec<(&'static str, ConnectionMetrics)>,
    ) {
        if let Some(front) = &self.0 {
            port_metrics.push(("zookeeper", front.metrics().clone()));
            front.register_metrics(registry);
        }
    }

    /// Starts the tasks that serve the ports. Each ends after its token is cancelled.
    pub(crate) fn serve(
        &self,
        bound: Bound,
        tls: Option<ServerTls>,
        insecure: bool,
    ) -> Vec<(CancellationToken, JoinHandle<()>)> {
        let ports = [(bound.main, tls), (bound.plain, None)];
        let ports = ports.into_iter().filter_map(|(port, tls)| {
            let ((listener, address), front) = port.zip(self.0.clone())?;
            let protection = protection(tls, insecure, address);
            let stop = CancellationToken::new();
            let serving = zk_front::serve(listener, front, protection, stop.clone());
            Some((stop, tokio::spawn(serving)))
        });
        ports.collect()
    }

    /// Changes the bounds of the front end.
    pub(crate) fn reconfigure(&self, config: ZkConfig) {
        if let Some(front) = &self.0 {
            front.reconfigure(config);
        }
    }
}

/// Returns the protection of a port. Without TLS its connections are trusted if they do not leave this
/// machine, or if the node is configured as insecure.
fn protection(tls: Option<ServerTls>, insecure: bool, address: SocketAddr) -> Protection {
    match tls {
        Some(tls) => Protection::Tls(tls),
        None if insecure || is_loopback(address.ip()) => Protection::Trusted,
        None => Protection::Exposed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_port_is_trusted_on_loopback_or_on_an_insecure_node() {
        for (insecure, address, trusted) in [
            (false, "127.0.0.1:2181", true),
            (false, "[::1]:2181", true),
            (false, "0.0.0.0:2181", false),
            (false, "192.0.2.1:2181", false),
            (true, "192.0.2.1:2181", true),
        ] {
            let found = protection(None, insecure, address.parse().unwrap());
            assert_eq!(
                matches!(found, Protection::Trusted),
                trusted,
                "{insecure} {address}"
            );
            assert_eq!(
                matches!(found, Protection::Exposed),
                !trusted,
                "{insecure} {address}"
            );
        }
    }
}
