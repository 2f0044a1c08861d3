//! Options of every command that calls nodes: TLS certificates and an access token.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use lock_client::{LockClient, Token};
use transport_security::ClientTls;

use crate::credentials::Credentials;
use crate::usage::UsageError;

/// Environment variable with the token. There is no option for the token itself, because other users of a
/// machine can see arguments.
pub const TOKEN_VARIABLE: &str = "LOCKGATE_TOKEN";

/// TLS certificates, and an access token for secured clusters.
#[derive(Debug, Default, Args)]
pub struct ConnectionOptions {
    /// PEM file of the authority that signed the servers' certificates; enables TLS
    #[arg(long, value_name = "FILE", env = "LOCKGATE_CA")]
    ca: Option<PathBuf>,
    /// PEM file of the client certificate to present to servers
    #[arg(long, value_name = "FILE", env = "LOCKGATE_CERT", requires = "key")]
    cert: Option<PathBuf>,
    /// Private key of the client certificate
    #[arg(long, value_name = "FILE", env = "LOCKGATE_KEY", requires = "cert")]
    key: Option<PathBuf>,
    /// File with the access token, which only its owner may read; by default the token is read from
    /// LOCKGATE_TOKEN
    #[arg(long, value_name = "FILE", env = "LOCKGATE_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Send the token to other machines without TLS, where anyone on the network path can read and use it
    #[arg(long)]
    insecure: bool,
}

impl ConnectionOptions {
    /// Returns the credentials of the command's connections.
    pub fn credentials(&self) -> anyhow::Result<Credentials> {
        let token = match &self.token_file {
            Some(file) => Some(Token::read(file).context("--token-file")?),
            None => token_of_environment()?,
        };
        Ok(Credentials {
            tls: self.tls()?,
            token,
            insecure: self.insecure,
        })
    }

    fn tls(&self) -> anyhow::Result<Option<ClientTls>> {
        let own = self.cert.as_deref().zip(self.key.as_deref());
        match &self.ca {
            Some(ca) => ClientTls::new(ca, own).map(Some).context("--ca, --cert, --key"),
            None if own.is_some() => {
                let message = "--cert requires TLS: name the servers' authority with --ca";
                Err(UsageError(message.to_owned()).into())
            }
            None => Ok(None),
        }
    }
}

fn token_of_environment() -> anyhow::Result<Option<Token>> {
    match std::env::var(TOKEN_VARIABLE) {
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => match Token::parse(&text) {
            Ok(token) => Ok(Some(token)),
            Err(error) => Err(UsageError(format!("{TOKEN_VARIABLE}: {error}")).into()),
        },
        Err(std::env::VarError::NotPresent) => Ok(None),
        // The value is not repeated, as it may be a secret.
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(UsageError(format!("{TOKEN_VARIABLE}: the value is not valid UTF-8")).into())
        }
    }
}

/// Checks addresses of nodes and returns them as `host:port`. Errors name `option`, the command-line option
/// that they came from.
pub fn addresses(
    option: &str,
    given: &[String],
    credentials: &Credentials,
) -> Result<Vec<String>, UsageError> {
    let builder = LockClient::builder(given);
    let builder = match &credentials.tls {
        Some(tls) => builder.tls(tls.clone()),
        None => builder,
    };
    match builder.build() {
        Ok(client) => Ok(client.addresses()),
        Err(error) => Err(UsageError(format!("{option}: {error}"))),
    }
}
