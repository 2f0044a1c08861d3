//! What the command line is told of TLS: by what it knows servers, and what it shows to them.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use transport_security::ClientTls;

/// Certificates, for servers with TLS.
#[derive(Debug, Default, Args)]
pub struct Secured {
    /// The authority that the servers' certificates are signed by; with it TLS is spoken
    #[arg(long, value_name = "FILE", env = "LOCKGATE_CA")]
    ca: Option<PathBuf>,
    /// A certificate to show to servers
    #[arg(long, value_name = "FILE", env = "LOCKGATE_CERT", requires = "key")]
    cert: Option<PathBuf>,
    /// Its private key
    #[arg(long, value_name = "FILE", env = "LOCKGATE_KEY", requires = "cert")]
    key: Option<PathBuf>,
}

impl Secured {
    /// What protects connections, if anything does.
    pub fn client(&self) -> anyhow::Result<Option<ClientTls>> {
        let own = self.cert.as_deref().zip(self.key.as_deref());
        match &self.ca {
            Some(ca) => ClientTls::new(ca, own).map(Some).context("--ca, --cert, --key"),
            None if own.is_some() => {
                bail!("--cert is shown to servers with TLS only: give their authority with --ca")
            }
            None => Ok(None),
        }
    }
}
