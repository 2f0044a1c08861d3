//! Stand-in for the ZooKeeper front end in a build without the feature `zookeeper`: there is no port, so nothing is served.

use std::net::SocketAddr;

use lock_api::http::{ConnectionMetrics, Tracing};
use lock_node::Node;
use lock_node::metrics::text_format::Registry;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use transport_security::ServerTls;

use crate::start_error::StartError;

#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {}

pub(crate) struct Bound;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Addresses {
    pub(crate) main: Option<SocketAddr>,
    pub(crate) plain: Option<SocketAddr>,
}

pub(crate) struct ZooKeeper;

impl Settings {
    pub(crate) fn listens(&self) -> [Option<&str>; 2] {
        [None, None]
    }

    pub(crate) fn set_common(&mut self, _secured_only: bool, _tracing: Option<Tracing>) {}

    pub(crate) async fn bind(&self) -> Result<Bound, StartError> {
        Ok(Bound)
    }
}

impl Bound {
    pub(crate) fn addresses(&self) -> Addresses {
        Addresses {
            main: None,
            plain: None,
        }
    }
}

impl ZooKeeper {
    pub(crate) fn new(_node: &Node, _settings: Settings, _ports: Addresses, _has_tls: bool) -> Self {
        Self
    }

    pub(crate) fn register(
        &self,
        _registry: &mut Registry,
        _port_metrics: &mut Vec<(&'static str, ConnectionMetrics)>,
    ) {
    }

    pub(crate) fn serve(
        &self,
        _bound: Bound,
        _tls: Option<ServerTls>,
        _insecure: bool,
    ) -> Vec<(CancellationToken, JoinHandle<()>)> {
        Vec::new()
    }
}
