//! Options of the commands that call a running cluster: its servers, and the time limit of a request.

use std::time::Duration;

use clap::Args;
use cli_support::connection_options::ConnectionOptions;
use cli_support::credentials::Credentials;
use cli_support::ensure_usage;
use cli_support::usage::UsageError;
use lock_client::LockClient;

/// Addresses of the nodes of `lockgate cluster up`.
const LOCAL_SERVERS: &str = "127.0.0.1:7401,127.0.0.1:7402,127.0.0.1:7403";

/// Servers of a cluster.
#[derive(Debug, Args)]
pub struct Servers {
    /// Addresses (host:port) of some servers of the cluster; the client skips servers that are unavailable
    #[arg(
        long = "server",
        value_name = "ADDRESS",
        env = "LOCKGATE_SERVERS",
        value_delimiter = ',',
        default_value = LOCAL_SERVERS,
        hide_default_value = true
    )]
    servers: Vec<String>,
    /// Time limit of a request, over all servers
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = humantime::parse_duration)]
    patience: Duration,
    #[command(flatten)]
    secured: ConnectionOptions,
}

impl Servers {
    /// Returns a client of the servers.
    pub fn client(&self) -> anyhow::Result<LockClient> {
        self.client_within(self.patience)
    }

    /// Returns a client of the servers with at most this time limit of a request, whatever `--patience` is.
    pub fn client_within(&self, limit: Duration) -> anyhow::Result<LockClient> {
        let Credentials { tls, token, insecure } = self.credentials()?;
        let mut builder = LockClient::builder(&self.servers).patience(self.patience.min(limit));
        if let Some(tls) = tls {
            builder = builder.tls(tls);
        }
        if let Some(token) = token {
            ensure_usage!(
                !token.is_operators() || self.servers.len() == 1,
                "an operator's token is valid only at its own node: name that node with --server"
            );
            builder = builder.token(token).insecure(insecure);
        }
        let built = builder.build();
        Ok(built.map_err(|error| UsageError(format!("--server, LOCKGATE_SERVERS: {error}")))?)
    }

    /// Returns the TLS options and the token.
    pub fn credentials(&self) -> anyhow::Result<Credentials> {
        self.secured.credentials()
    }
}
