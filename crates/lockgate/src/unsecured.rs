//! A node that serves nobody before its cluster is secured says so, says what to do about it, and says when it is done.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use raft_node::Node;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How often it is looked whether the cluster is secured. A person waits for it, for minutes; nothing else does.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What there is to tell an operator.
pub(crate) struct Unsecured {
    /// Where this node listens for HTTP.
    pub listens: SocketAddr,
    /// What clients call it, if it speaks TLS: the name that is in its certificate.
    pub called: Option<String>,
    /// The operator's token; none: it could not be written.
    pub operator: Option<PathBuf>,
}

impl Unsecured {
    /// Says that the cluster is not secured, as soon as this node can know that, and when it is. Ends then, or with `stop`.
    pub async fn tell(self, node: Node, stop: CancellationToken) {
        let look = async {
            let mut every = tokio::time::interval(LOOK_EVERY);
            let mut told = false;
            while !node.read(|store| store.is_secured()) {
                // Before that it may only not have heard of it.
                if !told && node.not_ready().is_none() {
                    warn!(node = node.id(), "{}", self.what_to_do());
                    told = true;
                }
                every.tick().await;
            }
            if told {
                info!(
                    node = node.id(),
                    "the cluster is secured: whoever its roles let in is served"
                );
            }
        };
        tokio::select! {
            () = look => {}
            () = stop.cancelled() => {}
        }
    }

    fn what_to_do(&self) -> String {
        let begin = "the cluster is not secured, and until it is, this node serves nobody but its operator";
        let Some(operator) = &self.operator else {
            return format!(
                "{begin}; it could not write its operator's token, so secure the cluster at another node"
            );
        };
        let (server, ca) = match &self.called {
            Some(called) => (called.clone(), " --ca CA.PEM"),
            // All interfaces: this machine's own is among them, where nobody listens on the way.
            None if self.listens.ip().is_unspecified() => (format!("localhost:{}", self.listens.port()), ""),
            None => (self.listens.to_string(), ""),
        };
        format!(
            "{begin}. Whoever may read its files secures it: `lockgate access secure --server {server}{ca} --token-file {} --out \
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
        let told = |listens: &str, called: Option<&str>, operator: Option<&str>| {
            let unsecured = Unsecured {
                listens: listens.parse().unwrap(),
                called: called.map(str::to_owned),
                operator: operator.map(PathBuf::from),
            };
            unsecured.what_to_do()
        };
        let says = told("0.0.0.0:7400", Some("lock-1:7400"), Some("/data/operator.token"));
        let command = "`lockgate access secure --server lock-1:7400 --ca CA.PEM --token-file /data/operator.token --out \
                       admin.token`";
        assert!(says.ends_with(command), "{says}");
        assert!(told("0.0.0.0:7400", None, Some("t")).contains("--server localhost:7400 --token-file t"));
        assert!(told("[::1]:1", None, Some("t")).contains("--server [::1]:1 --token-file t"));
        assert!(told("127.0.0.1:1", None, None).contains("at another node"));
    }
}
