//! etcd as a system under test: Debian's package with its default timeouts, used through its JSON gateway.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hyper::Method;
use serde_json::{Value, json};

use crate::cluster::software::{Node, Software, StartCommand};
use crate::http;

const PROGRAM: &str = "/usr/bin/etcd";

/// Time limit of a query; a running node answers at once.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Entries between two snapshots, so that several are made in a run of a minute.
const SNAPSHOT_COUNT: u64 = 2000;

/// Returns the reason if etcd cannot run on this machine.
pub fn missing() -> Option<String> {
    (!std::path::Path::new(PROGRAM).exists()).then(|| format!("{PROGRAM} is not installed (etcd-server)"))
}

/// The system under test.
#[derive(Clone, Debug)]
pub struct Etcd;

impl Software for Etcd {
    fn configure(&self, node: &Node, all: &[Node], joins: bool) -> Result<()> {
        let members = all
            .iter()
            .map(|member| format!("n{}=http://{}", member.id, member.addresses.peer));
        let members: Vec<_> = members.collect();
        let text = json!({
            "name": format!("n{}", node.id),
            "data-dir": node.data_dir(),
            "listen-client-urls": format!("http://{}", node.addresses.http),
            "advertise-client-urls": format!("http://{}", node.addresses.http),
            "listen-peer-urls": format!("http://{}", node.addresses.peer),
            "initial-advertise-peer-urls": format!("http://{}", node.addresses.peer),
            "initial-cluster": members.join(","),
            "initial-cluster-state": if joins { "existing" } else { "new" },
            "snapshot-count": SNAPSHOT_COUNT,
            // The gateway that this program uses; on by default, but off with a configuration file like this
            // one.
            "enable-grpc-gateway": true,
            "logger": "zap",
            "log-level": "warn",
        });
        // A JSON document is a YAML document.
        let file = node.dir.join("etcd.yaml");
        std::fs::write(&file, text.to_string()).with_context(|| file.display().to_string())
    }

    fn start(&self, node: &Node) -> StartCommand {
        let config = node.dir.join("etcd.yaml").display().to_string();
        StartCommand {
            program: PathBuf::from(PROGRAM),
            arguments: vec!["--config-file".to_owned(), config],
            environment: Vec::new(),
        }
    }

    fn is_ready<'a>(&'a self, node: &'a Node) -> BoxFuture<'a, bool> {
        async move {
            let health = http::get(node.addresses.http, "/health", TIMEOUT).await;
            health.is_ok_and(|health| health["health"] == "true")
        }
        .boxed()
    }

    fn leader<'a>(&'a self, node: &'a Node) -> BoxFuture<'a, Option<(u64, u64)>> {
        async move {
            let path = "/v3/maintenance/status";
            let nothing = json!({});
            let answer = http::call(node.addresses.http, Method::POST, path, &nothing, TIMEOUT);
            leads(node.id, &answer.await.ok()?.json())
        }
        .boxed()
    }

    fn digest<'a>(&'a self, _node: &'a Node) -> BoxFuture<'a, Result<Option<(u64, String)>>> {
        async { Ok(None) }.boxed()
    }
}

/// Returns the node and the term if this member is the leader. Members know each other by random ids, so each
/// can only report its own leadership.
fn leads(id: u64, status: &Value) -> Option<(u64, u64)> {
    let own = status["header"]["member_id"].as_str()?;
    let term = status["raftTerm"].as_str()?.parse().ok()?;
    (status["leader"].as_str()? == own).then_some((id, term))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_reports_only_its_own_leadership() {
        let status = |leader| json!({"header": {"member_id": "17"}, "leader": leader, "raftTerm": "4"});
        assert_eq!(leads(2, &status("17")), Some((2, 4)));
        assert_eq!(leads(2, &status("18")), None);
    }
}
