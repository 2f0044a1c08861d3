//! Options of the commands that call a running cluster: the cluster, and the time limit of a request.

use std::time::Duration;

use clap::Args;
use cli_support::connection_options::{Connection, ConnectionOptions};
use cli_support::credentials::Credentials;
use cli_support::ensure_usage;
use cli_support::usage::UsageError;
use lock_client::LockClient;

/// Servers of a cluster.
#[derive(Debug, Args)]
pub struct Servers {
    #[command(flatten)]
    connection: ConnectionOptions,
    /// Time limit of a request, over all servers
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = humantime::parse_duration)]
    patience: Duration,
}

impl Servers {
    /// Returns a client of the servers.
    pub fn client(&self) -> anyhow::Result<LockClient> {
        self.client_within(self.patience)
    }

    /// Returns a client of the servers with at most this time limit of a request, whatever `--patience` is.
    pub fn client_within(&self, limit: Duration) -> anyhow::Result<LockClient> {
        let Connection {
            servers,
            source,
            credentials: Credentials { tls, token, insecure },
        } = self.connection.connection()?;
        let mut builder = LockClient::builder(&servers).patience(self.patience.min(limit));
        if let Some(tls) = tls {
            builder = builder.tls(tls);
        }
        if let Some(token) = token {
            ensure_usage!(
                !token.is_operators() || servers.len() == 1,
                "an operator's token is valid only at its own node: name that node with --server"
            );
            builder = builder.token(token).insecure(insecure);
        }
        let built = builder.build();
        Ok(built.map_err(|error| UsageError(format!("{source}: {error}")))?)
    }

    /// Returns the time limit of a request.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Returns the addresses and the credentials, checked.
    pub fn connection(&self) -> anyhow::Result<Connection> {
        let mut connection = self.connection.connection()?;
        connection.servers = connection.addresses()?;
        Ok(connection)
    }
}
