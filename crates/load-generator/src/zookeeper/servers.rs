//! Servers of a load over ZooKeeper's protocol: a local cluster, or any named servers.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use cli_support::connection_options::{ConnectionOptions, addresses};
use local_cluster::{LocalCluster, LocalNode};
use nix::unistd::Pid;

use crate::nodes::Nodes;

/// Servers under load.
#[derive(Debug, Args)]
pub struct Servers {
    /// Directory of the local cluster whose nodes are called
    #[arg(long, default_value = "lockgate-data")]
    dir: PathBuf,
    /// Servers to call instead, ZooKeeper's or Lockgate's, as HOST:PORT, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "SERVERS")]
    servers: Vec<String>,
    #[command(flatten)]
    secured: ConnectionOptions,
}

impl Servers {
    /// Returns the addresses for ZooKeeper clients with the credentials.
    pub fn nodes(&self) -> anyhow::Result<Nodes> {
        let given = self.secured.credentials()?;
        match self.local()? {
            None => {
                let named = addresses("--servers", &self.servers, &given)?;
                Ok(Nodes::new(named, given))
            }
            Some(cluster) => {
                let addresses = cluster.nodes().map(address).collect::<anyhow::Result<_>>()?;
                Ok(Nodes::new(addresses, given.or(cluster.credentials())))
            }
        }
    }

    /// Returns the servers' processes, if it is a local cluster.
    pub fn processes(&self) -> anyhow::Result<Vec<Pid>> {
        let mut pids = Vec::new();
        if let Some(cluster) = self.local()? {
            for id in cluster.ids() {
                pids.extend(cluster.pid(id)?);
            }
        }
        Ok(pids)
    }

    /// Opens the local cluster, unless other servers are named.
    fn local(&self) -> anyhow::Result<Option<LocalCluster>> {
        if !self.servers.is_empty() {
            return Ok(None);
        }
        let executable = std::env::current_exe().context("finding this program's own file")?;
        LocalCluster::open(&self.dir, &executable)
            .context("start one with `lockgate cluster up`, or name servers with --servers")
            .map(Some)
    }
}

/// Returns a node's address for ZooKeeper clients.
pub fn address(node: &LocalNode) -> anyhow::Result<String> {
    let address = node.zookeeper.clone();
    address.with_context(|| format!("node {} does not serve clients of ZooKeeper", node.id))
}
