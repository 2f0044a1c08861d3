//! Options of every command that calls nodes: certificates for TLS, and an access token.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use lock_client::{LockClient, Token};
use transport_security::ClientTls;

use crate::credentials::Credentials;
use crate::usage::UsageError;

/// The variable of the environment with the token itself. There is no option for it, because other users of a machine see arguments.
pub const TOKEN_VARIABLE: &str = "LOCKGATE_TOKEN";

/// Certificates, for servers with TLS, and a token, for clusters that are secured.
#[derive(Debug, Default, Args)]
pub struct ConnectionOptions {
    /// The authority that the servers' certificates are signed by; with it TLS is spoken
    #[arg(long, value_name = "FILE", env = "LOCKGATE_CA")]
    ca: Option<PathBuf>,
    /// A certificate to show to servers
    #[arg(long, value_name = "FILE", env = "LOCKGATE_CERT", requires = "key")]
    cert: Option<PathBuf>,
    /// Its private key
    #[arg(long, value_name = "FILE", env = "LOCKGATE_KEY", requires = "cert")]
    key: Option<PathBuf>,
    /// A file with the token to show, which nobody else can read; without it LOCKGATE_TOKEN has the token itself
    #[arg(long, value_name = "FILE", env = "LOCKGATE_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Send the token without TLS to other machines, too: whoever listens on the way can use it
    #[arg(long)]
    insecure: bool,
}

impl ConnectionOptions {
    /// What protects connections, and what is shown over them.
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
                let told = "--cert is shown to servers with TLS only: give their authority with --ca";
                Err(UsageError(told.to_owned()).into())
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
        // What is in it is not repeated.
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(UsageError(format!("{TOKEN_VARIABLE}: it is no text")).into())
        }
    }
}

/// Checks addresses of nodes and returns them as `host:port`. Errors name `option`, by which they were given.
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
