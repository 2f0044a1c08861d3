//! A node that serves nobody before its cluster is secured says so, says what to do about it, and says when it is done.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use raft_node::Node;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How often it is looked whether the cluster is secured. A person waits for it, for minutes; nothing else does.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// What there is to tell an operator.
pub(crate) struct SetupNotice {
    /// Where this node listens for HTTP.
    pub address: SocketAddr,
    /// What clients call it, if it speaks TLS: the name that is in its certificate.
    pub advertised_address: Option<String>,
    /// The operator's token; none: it could not be written.
    pub operator: Option<PathBuf>,
}

impl SetupNotice {
    /// Says that the cluster is not secured, as soon as this node can know that, and when it is. Ends then, or with `stop`.
    pub async fn log_until_secured(self, node: Node, stop: CancellationToken) {
        let poll = async {
            let mut every = tokio::time::interval(POLL_INTERVAL);
            let mut warned = false;
            while !node.read(|store| store.is_secured()) {
                // Before that it may only not have heard of it.
                if !warned && node.not_ready().is_none() {
                    warn!(node = node.id(), "{}", self.instruction());
                    warned = true;
                }
                every.tick().await;
            }
            if warned {
                info!(
                    node = node.id(),
                    "the cluster is secured: whoever its roles let in is served"
                );
            }
        };
        tokio::select! {
            () = poll => {}
            () = stop.cancelled() => {}
        }
    }

    fn instruction(&self) -> String {
        let fact = "the cluster is not secured, and until it is, this node serves nobody but its operator";
        let Some(operator) = &self.operator else {
            return format!(
                "{fact}; it could not write its operator's token, so secure the cluster at another node"
            );
        };
        let (server, ca) = match &self.advertised_address {
            Some(advertised_address) => (advertised_address.clone(), " --ca CA.PEM"),
            // All interfaces: this machine's own is among them, where nobody listens on the way.
            None if self.address.ip().is_unspecified() => (format!("localhost:{}", self.address.port()), ""),
            None => (self.address.to_string(), ""),
        };
        format!(
            "{fact}. Whoever may read its files secures it: `lockgate access secure --server {server}{ca} --token-file {} --out \
             admin.token`",
            operator.display(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_is_told_what_to_type() {
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
