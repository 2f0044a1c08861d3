//! Log lines of a node that serves only its operator: one with the command that secures the cluster, and one
//! when the cluster is secured.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use lock_node::Node;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Poll interval of the cluster's state. Only a person waits for the result, for minutes.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Addresses and file that the instruction names.
pub(crate) struct SetupNotice {
    /// Address at which this node listens for HTTP.
    pub address: SocketAddr,
    /// Address in the member list, if the node has TLS: its certificate has this name.
    pub advertised_address: Option<String>,
    /// File with the operator's token; `None` if it could not be written.
    pub operator: Option<PathBuf>,
}

impl SetupNotice {
    /// Logs that the cluster is not secured, as soon as this node has caught up, and logs when it is secured.
    /// Then it returns, or when `stop` is cancelled.
    pub async fn log_until_secured(self, node: Node, stop: CancellationToken) {
        let poll = async {
            let mut every = tokio::time::interval(POLL_INTERVAL);
            let mut warned = false;
            while !node.read(|store| store.is_secured()) {
                // Before it is ready the node may not have applied the entry that secured the cluster.
                if !warned && node.not_ready().is_none() {
                    warn!(node = node.id(), "{}", self.instruction());
                    warned = true;
                }
                every.tick().await;
            }
            if warned {
                info!(
                    node = node.id(),
                    "the cluster is secured; the node serves callers as their roles allow"
                );
            }
        };
        tokio::select! {
            () = poll => {}
            () = stop.cancelled() => {}
        }
    }

    fn instruction(&self) -> String {
        let fact = "the cluster is not secured; until it is, this node serves only its operator";
        let Some(operator) = &self.operator else {
            return format!(
                "{fact}. It could not write its operator's token: secure the cluster at another node"
            );
        };
        let (server, ca) = match &self.advertised_address {
            Some(advertised_address) => (advertised_address.clone(), " --ca CA.PEM"),
            // Of all interfaces the instruction names the loopback one, where nobody can read the secret on
            // its way.
            None if self.address.ip().is_unspecified() => (format!("localhost:{}", self.address.port()), ""),
            None => (self.address.to_string(), ""),
        };
        format!(
            "{fact}. Secure the cluster as a user who can read the node's files: `lockgate access secure --server {server}{ca} --token-file {} --out \
             admin.token`",
            operator.display(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instruction_names_a_server_and_the_token_file() {
        let instruction = |address: &str, advertised_address: Option<&str>, operator: Option<&str>| {
            let notice = SetupNotice {
                address: address.parse().unwrap(),
                advertised_address: advertised_address.map(str::to_owned),
                operator: operator.map(PathBuf::from),
            };
            notice.instruction()
        };
        let text = instruction("0.0.0.0:7400", Some("lock-1:7400"), Some("/data/operator.token"));
        let command = "`lockgate access secure --server lock-1:7400 --ca CA.PEM --token-file /data/operator.token --out \
                       admin.token`";
        assert!(text.ends_with(command), "{text}");
        assert!(
            instruction("0.0.0.0:7400", None, Some("t")).contains("--server localhost:7400 --token-file t")
        );
        assert!(instruction("[::1]:1", None, Some("t")).contains("--server [::1]:1 --token-file t"));
        assert!(instruction("127.0.0.1:1", None, None).contains("at another node"));
    }
}
