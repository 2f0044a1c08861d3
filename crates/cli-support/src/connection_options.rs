//! Options of every command that calls a cluster: its servers or a context, TLS certificates and an access
//! token.
//!
//! Options come before `--context`, that before variables of the environment, those before the context of
//! `LOCKGATE_CONTEXT`. The current context of the configuration file applies only if none of them names
//! servers: no credentials of one cluster are sent to servers of another by accident.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use lock_client::{LockClient, Token};
use transport_security::ClientTls;

use crate::contexts::{ContextFile, Environment, has_home};
use crate::credentials::Credentials;
use crate::usage::UsageError;

/// Environment variable with the token. There is no option for the token itself, because other users of a
/// machine can see arguments.
pub const TOKEN_VARIABLE: &str = "LOCKGATE_TOKEN";

/// Addresses of the nodes of `lockgate dev up`.
const LOCAL_SERVERS: [&str; 3] = ["127.0.0.1:7401", "127.0.0.1:7402", "127.0.0.1:7403"];

/// Servers, TLS certificates, and an access token for secured clusters.
#[derive(Debug, Default, Args)]
pub struct ConnectionOptions {
    /// Addresses (host:port) of some servers of the cluster, separated by commas or by repeating the option;
    /// the client skips servers that are unavailable. Variable: LOCKGATE_SERVERS
    #[arg(long = "server", value_name = "ADDRESS", value_delimiter = ',')]
    servers: Vec<String>,
    /// Context of the configuration file (see `lockgate context`). Variable: LOCKGATE_CONTEXT
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// PEM file of the authority that signed the servers' certificates; enables TLS. Variable: LOCKGATE_CA
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// PEM file of the client certificate to present to servers. Variable: LOCKGATE_CERT
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Private key of the client certificate. Variable: LOCKGATE_KEY
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// File with the access token, which only its owner may read. Variables: LOCKGATE_TOKEN_FILE,
    /// LOCKGATE_TOKEN (the token itself)
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Send the token to other machines without TLS, where anyone on the network path can read and use it
    #[arg(long)]
    insecure: bool,
}

/// Cluster that a command calls.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Addresses of the servers as they were given.
    pub servers: Vec<String>,
    /// Source of the addresses, for errors: an option, a variable, or a context.
    pub source: String,
    /// Credentials.
    pub credentials: Credentials,
}

impl Connection {
    /// Checks the addresses and returns them as `host:port`.
    pub fn addresses(&self) -> Result<Vec<String>, UsageError> {
        addresses(&self.source, &self.servers, &self.credentials)
    }
}

/// Values from one source.
#[derive(Debug, Default)]
struct Layer {
    source: String,
    servers: Vec<String>,
    ca: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
    token: Option<TokenSource>,
}

/// Place of a token.
#[derive(Debug)]
enum TokenSource {
    File(PathBuf),
    /// The token, and the variable or context that has it.
    Text(String, String),
}

impl TokenSource {
    fn read(self) -> anyhow::Result<Token> {
        match self {
            Self::File(file) => Token::read(&file).context("--token-file"),
            Self::Text(text, place) => {
                Token::parse(&text).map_err(|error| UsageError(format!("{place}: {error}")).into())
            }
        }
    }
}

impl ConnectionOptions {
    /// Returns whether the option `--server` names the servers.
    pub fn names_servers(&self) -> bool {
        !self.servers.is_empty()
    }

    /// Returns the cluster of the options, the variables and the contexts; the one of `lockgate dev up` if
    /// none of them names one.
    pub fn connection(&self) -> anyhow::Result<Connection> {
        let mut connection = self.resolve(&|name| std::env::var_os(name))?;
        if connection.servers.is_empty() {
            connection.servers = LOCAL_SERVERS.map(str::to_owned).to_vec();
        }
        Ok(connection)
    }

    /// Returns the cluster that an option, a variable or a context names, if any.
    pub fn named(&self) -> anyhow::Result<Option<Connection>> {
        let connection = self.resolve(&|name| std::env::var_os(name))?;
        Ok(Some(connection).filter(|connection| !connection.servers.is_empty()))
    }

    /// Returns the credentials of options and variables alone, for a cluster that no context names.
    pub fn credentials(&self) -> anyhow::Result<Credentials> {
        let variables = Layer::of_environment(&|name| std::env::var_os(name))?;
        Ok(self.merge(vec![self.given(), variables])?.credentials)
    }

    /// Finds the sources, the strongest first, and merges them.
    fn resolve(&self, environment: Environment<'_>) -> anyhow::Result<Connection> {
        let variables = Layer::of_environment(environment)?;
        let no_servers = self.servers.is_empty() && variables.servers.is_empty();
        let mut layers = vec![self.given()];
        match (&self.context, variable(environment, "LOCKGATE_CONTEXT")?) {
            (Some(name), _) => {
                layers.push(Layer::of_context(&ContextFile::read(environment)?, name)?);
                layers.push(variables);
            }
            (None, Some(name)) => {
                let context = Layer::of_context(&ContextFile::read(environment)?, &name)
                    .map_err(|error| UsageError(format!("LOCKGATE_CONTEXT: {error}")))?;
                layers.extend([variables, context]);
            }
            (None, None) => {
                layers.push(variables);
                if no_servers && has_home(environment) {
                    let file = ContextFile::read(environment)?;
                    let current = file.current().map(|name| Layer::of_context(&file, name));
                    layers.extend(current.transpose()?);
                }
            }
        }
        self.merge(layers)
    }

    fn merge(&self, layers: Vec<Layer>) -> anyhow::Result<Connection> {
        let mut merged = Layer::default();
        for layer in layers {
            if merged.servers.is_empty() {
                (merged.source, merged.servers) = (layer.source, layer.servers);
            }
            merged.ca = merged.ca.or(layer.ca);
            merged.identity = merged.identity.or(layer.identity);
            merged.token = merged.token.or(layer.token);
        }
        Ok(Connection {
            servers: merged.servers,
            source: merged.source,
            credentials: Credentials {
                tls: tls(merged.ca, merged.identity)?,
                token: merged.token.map(TokenSource::read).transpose()?,
                insecure: self.insecure,
            },
        })
    }

    fn given(&self) -> Layer {
        Layer {
            source: "--server".to_owned(),
            servers: self.servers.clone(),
            ca: self.ca.clone(),
            identity: self.cert.clone().zip(self.key.clone()),
            token: self.token_file.clone().map(TokenSource::File),
        }
    }
}

impl Layer {
    fn of_environment(environment: Environment<'_>) -> Result<Self, UsageError> {
        let text = |name| variable(environment, name);
        let path = |name| Ok(text(name)?.map(PathBuf::from));
        let (cert, key) = (path("LOCKGATE_CERT")?, path("LOCKGATE_KEY")?);
        if cert.is_some() != key.is_some() {
            return Err(UsageError(
                "LOCKGATE_CERT and LOCKGATE_KEY belong together".to_owned(),
            ));
        }
        let servers = text("LOCKGATE_SERVERS")?;
        Ok(Self {
            source: "LOCKGATE_SERVERS".to_owned(),
            servers: servers.map_or_else(Vec::new, |list| list.split(',').map(str::to_owned).collect()),
            ca: path("LOCKGATE_CA")?,
            identity: cert.zip(key),
            token: match path("LOCKGATE_TOKEN_FILE")? {
                Some(file) => Some(TokenSource::File(file)),
                None => text(TOKEN_VARIABLE)?.map(|text| TokenSource::Text(text, TOKEN_VARIABLE.to_owned())),
            },
        })
    }

    fn of_context(file: &ContextFile, name: &str) -> Result<Self, UsageError> {
        let context = file.context(name)?.clone();
        let source = format!("context {name}");
        let token = context.token.map(|text| TokenSource::Text(text, source.clone()));
        Ok(Self {
            servers: context.servers,
            ca: context.ca,
            identity: context.cert.zip(context.key),
            token: token.or(context.token_file.map(TokenSource::File)),
            source,
        })
    }
}

/// Returns the value of a variable; an empty variable counts as not set.
fn variable(environment: Environment<'_>, name: &str) -> Result<Option<String>, UsageError> {
    let value = environment(name).filter(|value| !value.is_empty());
    // The value is not repeated, as it may be a secret.
    let text = value.map(|value| value.into_string());
    text.transpose()
        .map_err(|_| UsageError(format!("{name}: the value is not valid UTF-8")))
}

fn tls(ca: Option<PathBuf>, identity: Option<(PathBuf, PathBuf)>) -> anyhow::Result<Option<ClientTls>> {
    let own = identity
        .as_ref()
        .map(|(cert, key)| (cert.as_path(), key.as_path()));
    match &ca {
        Some(ca) => ClientTls::new(ca, own).map(Some).context("--ca, --cert, --key"),
        None if own.is_some() => {
            let message = "--cert requires TLS: name the servers' authority with --ca";
            Err(UsageError(message.to_owned()).into())
        }
        None => Ok(None),
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

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const FILE: &str = "current_context = \"now\"\n\
        [contexts.now]\nservers = [\"now:1\"]\ntoken = \"lg_now\"\n\
        [contexts.other]\nservers = [\"other:1\"]\ntoken = \"lg_other\"\n";

    /// Returns servers and token of these options and variables.
    fn resolved(
        servers: &str,
        context: Option<&str>,
        variables: &[(&str, &str)],
    ) -> anyhow::Result<(Vec<String>, Option<String>)> {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("lockgate")).unwrap();
        let file = dir.path().join("lockgate/config.toml");
        fs::write(&file, FILE).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let environment = |name: &str| match name {
            "XDG_CONFIG_HOME" => Some(dir.path().as_os_str().to_owned()),
            name => {
                let known = variables.iter().find(|(known, _)| *known == name);
                known.map(|(_, value)| OsString::from(value))
            }
        };
        let options = ConnectionOptions {
            servers: servers.split_terminator(',').map(str::to_owned).collect(),
            context: context.map(str::to_owned),
            ..ConnectionOptions::default()
        };
        let connection = options.resolve(&environment)?;
        let token = connection.credentials.token;
        Ok((connection.servers, token.map(|token| token.expose().to_owned())))
    }

    #[test]
    fn stronger_sources_of_servers_and_tokens_come_first() {
        const SERVERS: (&str, &str) = ("LOCKGATE_SERVERS", "variable:1");
        const TOKEN: (&str, &str) = ("LOCKGATE_TOKEN", "lg_variable");
        const CONTEXT: (&str, &str) = ("LOCKGATE_CONTEXT", "other");
        for (servers, context, variables, expected_server, expected_token) in [
            // The current context, and the variable of its token.
            ("", None, &[][..], "now:1", Some("lg_now")),
            ("", None, &[TOKEN][..], "now:1", Some("lg_variable")),
            ("", None, &[CONTEXT], "other:1", Some("lg_other")),
            ("", None, &[("LOCKGATE_CONTEXT", "")], "now:1", Some("lg_now")),
            // Named servers get nothing of the current context, but of a context that is chosen.
            ("", None, &[SERVERS], "variable:1", None),
            ("option:1", None, &[], "option:1", None),
            ("", None, &[SERVERS, CONTEXT], "variable:1", Some("lg_other")),
            (
                "option:1",
                None,
                &[SERVERS, TOKEN],
                "option:1",
                Some("lg_variable"),
            ),
            // An option comes before every variable.
            ("", Some("other"), &[SERVERS, TOKEN], "other:1", Some("lg_other")),
            ("option:1", Some("other"), &[TOKEN], "option:1", Some("lg_other")),
            ("", Some("now"), &[CONTEXT], "now:1", Some("lg_now")),
        ] {
            let found = resolved(servers, context, variables).unwrap();
            let expected = (
                vec![expected_server.to_owned()],
                expected_token.map(str::to_owned),
            );
            assert_eq!(found, expected, "{servers:?} {context:?} {variables:?}");
        }
    }

    #[test]
    fn wrong_sources_are_named() {
        for (context, variables, name) in [
            (Some("none"), &[][..], "no context \"none\"; there are now, other"),
            (None, &[("LOCKGATE_CONTEXT", "none")][..], "LOCKGATE_CONTEXT: "),
            (None, &[("LOCKGATE_TOKEN", "two words")], "LOCKGATE_TOKEN: "),
            (None, &[("LOCKGATE_CERT", "a.pem")], "LOCKGATE_KEY"),
        ] {
            let error = resolved("", context, variables).unwrap_err();
            assert!(
                error.is::<UsageError>() && error.to_string().contains(name),
                "{error}"
            );
        }
    }
}
