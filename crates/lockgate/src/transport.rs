//! How a server's connections are protected: what is made of its certificates, and what it refuses to do without any.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use raft_node::{NodeConfig, NodeId};
use tokio::net::lookup_host;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use transport_security::{
    ClientCertificates, HandshakeBounds, OldestVersion, PeerTls, ServerTls, TlsError, TlsFiles, keep_fresh,
};

use crate::server::StartError;

/// What is spoken over HTTP's port, for clients that ask.
const HTTP_PROTOCOLS: [&str; 1] = ["http/1.1"];

/// Peers are few, and a node takes 256 of their connections: half of them stay out of reach for whoever opens connections and
/// proves nothing.
const PEER_HANDSHAKES_AT_ONCE: usize = 128;

/// Certificates of a server, and of whom it believes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsConfig {
    /// What this node shows to clients, and to its peers unless `peers` says otherwise. For its peers it has to have the name
    /// `lockgate://CLUSTER/node/ID`. The authority is believed of peers, and of clients unless `clients` says otherwise.
    pub files: TlsFiles,
    /// What is asked of clients.
    pub clients: ClientCertificates,
    /// What this node shows to its peers, and whom it believes, if that is something else.
    pub peers: Option<TlsFiles>,
    /// What handshakes of clients may cost.
    pub handshakes: HandshakeBounds,
    /// Oldest version of TLS that clients of ZooKeeper may speak. Everybody else speaks 1.3.
    pub zookeeper_oldest: OldestVersion,
}

impl TlsConfig {
    /// With defaults for all but the files: who has a certificate that their authority has signed is known by it.
    pub fn new(files: TlsFiles) -> Self {
        Self {
            clients: ClientCertificates::Optional(files.ca.clone()),
            files,
            peers: None,
            handshakes: HandshakeBounds::default(),
            zookeeper_oldest: OldestVersion::default(),
        }
    }
}

/// What protects a server's connections.
pub(crate) struct Transport {
    pub http: ServerTls,
    pub zookeeper: ServerTls,
    pub peers: PeerTls,
    now: Arc<Notify>,
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
        let peer_handshakes = HandshakeBounds {
            at_once: handshakes.at_once.min(PEER_HANDSHAKES_AT_ONCE),
            ..*handshakes
        };
        Ok(Self {
            http: serve("HTTP", &HTTP_PROTOCOLS, OldestVersion::Tls13)?,
            zookeeper: serve("clients of ZooKeeper", &[], *zookeeper_oldest)?,
            peers: PeerTls::new(peers.as_ref().unwrap_or(files), cluster, node, peer_handshakes)?,
            now: Arc::new(Notify::new()),
        })
    }

    /// Follows the files until `stop`.
    pub fn follow(&self, stop: CancellationToken) -> impl Future<Output = ()> + use<> {
        let things = vec![
            self.http.reloadable(),
            self.zookeeper.reloadable(),
            self.peers.reloadable(),
        ];
        keep_fresh(things, self.now.clone(), stop)
    }

    /// Has the files looked at now.
    pub fn look_now(&self) -> Arc<Notify> {
        self.now.clone()
    }
}

/// Where a server without TLS may not listen: what for, and where.
pub(crate) async fn refuse_exposed(
    config: &NodeConfig,
    http: Option<&str>,
    zookeeper: [Option<&str>; 2],
    admin: Option<&str>,
) -> Result<(), StartError> {
    let peers = match config.peer_listen {
        Some(address) => Some(address.to_string()),
        None => config.members.get(&config.node_id).map(|own| own.peer.clone()),
    };
    let all = [
        ("HTTP", http),
        ("clients of ZooKeeper", zookeeper[0]),
        ("clients of ZooKeeper", zookeeper[1]),
        ("administration", admin),
        ("its peers", peers.as_deref()),
    ];
    for (what, address) in all {
        // An address that leads nowhere is reported by whoever wants to listen there.
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

/// Whether others than programs on this machine can call an address.
pub(crate) async fn reaches_beyond(address: &str) -> io::Result<bool> {
    let mut found = lookup_host(address).await?;
    Ok(found.any(|address| !is_loopback(address.ip())))
}

/// Whether nobody but the operator is served before the cluster is secured: as it was asked for, and otherwise where others than
/// programs on this machine can call and are not all trusted.
pub(crate) fn requires_access(
    asked: Option<bool>,
    insecure: bool,
    mut addresses: impl Iterator<Item = SocketAddr>,
) -> bool {
    asked.unwrap_or_else(|| !insecure && addresses.any(|address| !is_loopback(address.ip())))
}

/// Whether only programs on this machine can call this address.
pub(crate) fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_can_be_called_by_others_wants_to_know_who_they_are() {
        for (asked, insecure, addresses, required) in [
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
                requires_access(asked, insecure, parsed),
                required,
                "{asked:?} {insecure} {addresses:?}"
            );
        }
    }

    #[tokio::test]
    async fn loopback_is_what_only_this_machine_reaches() {
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
