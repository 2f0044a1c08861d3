//! Checks of the addresses that a node would listen at.

use std::io::ErrorKind;

use tokio::net::TcpListener;

use super::Findings;
use crate::config::ServeConfig;
use crate::transport::{reaches_beyond, refuse_exposed};

/// Checks the addresses. With `runs` this node is running and has bound them.
pub(super) async fn check_all(config: &ServeConfig, runs: bool, findings: &mut Findings) {
    let node = &config.node;
    if config.tls.is_none() && !config.insecure {
        let http = Some(config.http_listen.as_str());
        let zookeeper = [&config.zookeeper_listen, &config.zookeeper_plain_listen];
        let zookeeper = zookeeper.map(Option::as_deref);
        let admin = config.admin_listen.as_deref();
        if let Err(error) = refuse_exposed(node, http, zookeeper, config.redis_listen.as_deref(), admin).await
        {
            findings.error("tls.certificate", error.to_string());
        }
    }
    if let Some(plain) = &config.zookeeper_plain_listen
        && !config.insecure
        && reaches_beyond(plain).await.unwrap_or(false)
    {
        let fact = format!(
            "other machines can reach {plain}, and everybody on the network path can read its connections; the node rejects tokens \
             and the superuser's password there"
        );
        findings.warn("zookeeper_plain_listen", fact);
    }
    let own = node
        .raft
        .members
        .get(&node.raft.node_id)
        .map(|own| own.peer.clone());
    let (peer_setting, peer) = match &node.raft.peer_listen {
        Some(address) => ("peer_listen".to_owned(), Some(address.to_string())),
        None => (format!("members.{}", node.raft.node_id), own),
    };
    let all = [
        ("http_listen".to_owned(), Some(config.http_listen.clone())),
        ("zookeeper_listen".to_owned(), config.zookeeper_listen.clone()),
        (
            "zookeeper_plain_listen".to_owned(),
            config.zookeeper_plain_listen.clone(),
        ),
        ("redis_listen".to_owned(), config.redis_listen.clone()),
        ("admin_listen".to_owned(), config.admin_listen.clone()),
        (peer_setting, peer),
    ];
    for (setting, address) in all {
        if let Some(address) = address {
            listen(&setting, &address, runs, findings).await;
        }
    }
}

async fn listen(setting: &str, address: &str, runs: bool, findings: &mut Findings) {
    let Err(error) = TcpListener::bind(address).await else {
        return;
    };
    match error.kind() {
        ErrorKind::AddrInUse if runs => {}
        ErrorKind::AddrInUse => findings.warn(
            setting,
            format!("{address} is in use, by this node if it is running; otherwise a node could not start"),
        ),
        ErrorKind::AddrNotAvailable => {
            findings.error(setting, format!("{address} is not an address of this machine"));
        }
        ErrorKind::PermissionDenied => findings.error(
            setting,
            format!("cannot listen at {address}: ports below 1024 need CAP_NET_BIND_SERVICE"),
        ),
        _ => findings.error(setting, format!("{address}: {error}")),
    }
}
