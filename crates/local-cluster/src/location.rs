//! Options of commands that work on a cluster of this machine or on any other: which one it is.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use cli_support::connection_options::{Connection, ConnectionOptions};
use cli_support::credentials::Credentials;

use crate::LocalCluster;
use crate::members::Members;

/// Directory of a local cluster if none is named.
const DEFAULT_DIR: &str = "lockgate-data";

/// Options that name a cluster: `--dir`, or those of every command that calls a cluster. Without any of them, and
/// without a variable or a context, it is the local cluster in `lockgate-data`.
#[derive(Debug, Args)]
pub struct Location {
    /// Directory of a cluster on this machine, which has its own addresses and credentials (default:
    /// lockgate-data)
    #[arg(long, value_name = "DIR", conflicts_with_all = ["servers", "context"])]
    dir: Option<PathBuf>,
    #[command(flatten)]
    connection: ConnectionOptions,
}

/// Cluster that was found.
#[derive(Debug)]
pub enum Place {
    /// Processes on this machine.
    Local(LocalCluster),
    /// Servers at given addresses.
    Servers(Connection),
}

impl Location {
    /// Finds the cluster.
    pub fn find(&self) -> anyhow::Result<Place> {
        if self.dir.is_none()
            && let Some(named) = self.connection.named()?
        {
            return Ok(Place::Servers(named));
        }
        let dir = self.dir.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_DIR));
        let executable = std::env::current_exe().context("finding this program's own file")?;
        LocalCluster::open(&dir, &executable)
            .context("start one with `lockgate dev up`, or name servers with --server")
            .map(Place::Local)
    }

    /// Returns whether the option `--server` names the servers.
    pub fn names_servers(&self) -> bool {
        self.connection.names_servers()
    }

    /// Returns the credentials of options and variables, for the nodes of a local cluster.
    pub fn credentials(&self) -> anyhow::Result<Credentials> {
        self.connection.credentials()
    }
}

impl Place {
    /// Returns the local cluster, if it is one.
    pub fn local(self) -> Option<LocalCluster> {
        match self {
            Self::Local(cluster) => Some(cluster),
            Self::Servers(_) => None,
        }
    }

    /// Returns a client for changes of the membership.
    pub fn members(&self) -> anyhow::Result<Members> {
        match self {
            Self::Local(cluster) => cluster.members(),
            Self::Servers(servers) => {
                let addresses = servers.addresses()?;
                Ok(Members::at(&addresses).with(servers.credentials.clone()))
            }
        }
    }
}
