//! TLS of a server: its certificates, and and the addresses that must not be served without TLS.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use lock_node::{NodeConfig, NodeId};
use tokio::net::lookup_host;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use transport_security::{
    ClientCertificates, HandshakeLimits, OldestVersion, PeerTls, ServerTls, TlsError, TlsFiles, keep_fresh,
};

use crate::start_error::StartError;

/// Protocols that a client may choose over HTTP's port.
const HTTP_PROTOCOLS: [&str; 1] = ["http/1.1"];

/// Maximum number of concurrent handshakes of peers. A node accepts 256 connections of peers, so callers
/// without a verified certificate get at most half of them.
const MAX_PEER_HANDSHAKES: usize = 128;

/// Certificates and authorities of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsConfig {
    /// Certificate for clients, and for peers unless `peers` is set; peers want the name `lockgate://CLUSTER/node/ID` in it. The authority
    /// verifies peers, and clients unless `clients` has another one.
    pub files: TlsFiles,
    /// Requirements for client certificates.
    pub clients: ClientCertificates,
    /// Certificate for peers, and the authority that verifies theirs, if they differ.
    pub peers: Option<TlsFiles>,
    /// Bounds of client handshakes.
    pub handshakes: HandshakeLimits,
    /// Oldest TLS version for clients of ZooKeeper. All other connections use 1.3.
    pub zookeeper_oldest: OldestVersion,
}

impl TlsConfig {
    /// Configuration with defaults for all but the files. Client certificates are optional, and verified by the same authority.
    pub fn new(files: TlsFiles) -> Self {
        Self {
            clients: ClientCertificates::Optional(files.ca.clone()),
            files,
            peers: None,
            handshakes: HandshakeLimits::default(),
            zookeeper_oldest: OldestVersion::default(),
        }
    }
}

/// TLS state of a server's ports.
pub(crate) struct Transport {
    pub http: ServerTls,
    pub zookeeper: ServerTls,
    pub redis: ServerTls,
    pub peers: PeerTls,
    reload: Arc<Notify>,
}

impl Transport {
    pub fn new(config: &TlsConfig, cluster: &str, node: NodeId) -> Result<Self, TlsError> {
        let TlsConfig {
            files,
            clients,
            peers,
            handshakes,
            zookeeper_oldest,
        } = config;
        let serve = |what, protocols: &[&str], oldest| {
            let clients = clients.clone();
            ServerTls::new(
                what,
                &files.certificate,
                &files.key,
                clients,
                protocols,
                oldest,
                *handshakes,
            )
        };
        let peer_handshakes = HandshakeLimits {
            at_once: handshakes.at_once.min(MAX_PEER_HANDSHAKES),
            ..*handshakes
        };
        Ok(Self {
            http: serve("HTTP", &HTTP_PROTOCOLS, OldestVersion::Tls13)?,
            zookeeper: serve("clients of ZooKeeper", &[], *zookeeper_oldest)?,
            redis: serve("clients of Redis", &[], OldestVersion::Tls13)?,
            peers: PeerTls::new(peers.as_ref().unwrap_or(files), cluster, node, peer_handshakes)?,
            reload: Arc::new(Notify::new()),
        })
    }

    /// Follows changes of the files until `stop`.
    pub fn follow(&self, stop: CancellationToken) -> impl Future<Output = ()> + use<> {
        let reloadable = vec![
            self.http.reloadable(),
            self.zookeeper.reloadable(),
            self.redis.reloadable(),
            self.peers.reloadable(),
        ];
        keep_fresh(reloadable, self.reload.clone(), stop)
    }

    /// Returns the trigger of an immediate check of the files.
    pub fn reload_trigger(&self) -> Arc<Notify> {
        self.reload.clone()
    }
}

/// Returns an error for the first address that other machines can reach without TLS.
pub(crate) async fn refuse_exposed(
    config: &NodeConfig,
    http: Option<&str>,
    zookeeper: [Option<&str>; 2],
    redis: Option<&str>,
    admin: Option<&str>,
) -> Result<(), StartError> {
    let peers = match config.raft.peer_listen {
        Some(address) => Some(address.to_string()),
        None => config
            .raft
            .members
            .get(&config.raft.node_id)
            .map(|own| own.peer.clone()),
    };
    let all = [
        ("HTTP", http),
        ("clients of ZooKeeper", zookeeper[0]),
        ("clients of ZooKeeper", zookeeper[1]),
        ("clients of Redis", redis),
        ("administration", admin),
        ("its peers", peers.as_deref()),
    ];
    for (what, address) in all {
        // An address that does not resolve is reported when it is bound.
        if let Some(address) = address
            && reaches_beyond(address).await.unwrap_or(false)
        {
            return Err(StartError::Exposed {
                what,
                address: address.to_owned(),
            });
        }
    }
    Ok(())
}

/// Returns whether other machines can reach an address.
pub(crate) async fn reaches_beyond(address: &str) -> io::Result<bool> {
    let mut found = lookup_host(address).await?;
    Ok(found.any(|address| !is_loopback(address.ip())))
}

/// Returns whether the node serves only the operator before the cluster is secured: as configured, or by
/// default if other machines can reach the node and are not all trusted.
pub(crate) fn requires_access(
    configured: Option<bool>,
    insecure: bool,
    mut addresses: impl Iterator<Item = SocketAddr>,
) -> bool {
    configured.unwrap_or_else(|| !insecure && addresses.any(|address| !is_loopback(address.ip())))
}

/// Returns whether only programs on this machine can reach the address.
pub(crate) fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reachable_node_requires_access() {
        for (configured, insecure, addresses, required) in [
            (None, false, &["127.0.0.1:1", "127.0.0.1:2"][..], false),
            (None, false, &["127.0.0.1:1", "0.0.0.0:2"], true),
            (None, false, &["192.0.2.1:1"], true),
            (None, false, &["[::1]:1"], false),
            (None, false, &[], false),
            (None, true, &["192.0.2.1:1"], false),
            (Some(false), false, &["192.0.2.1:1"], false),
            (Some(true), false, &["127.0.0.1:1"], true),
            (Some(true), true, &["192.0.2.1:1"], true),
        ] {
            let parsed = addresses.iter().map(|address| address.parse().unwrap());
            assert_eq!(
                requires_access(configured, insecure, parsed),
                required,
                "{configured:?} {insecure} {addresses:?}"
            );
        }
    }

    #[tokio::test]
    async fn loopback_addresses_reach_this_machine_only() {
        for (address, beyond) in [
            ("127.0.0.1:7400", false),
            ("127.8.9.10:0", false),
            ("[::1]:7400", false),
            ("[::ffff:127.0.0.1]:7400", false),
            ("localhost:7400", false),
            ("0.0.0.0:7400", true),
            ("[::]:7400", true),
            ("192.0.2.1:7400", true),
            ("[2001:db8::1]:7400", true),
        ] {
            assert_eq!(reaches_beyond(address).await.unwrap(), beyond, "{address}");
        }
    }
}
