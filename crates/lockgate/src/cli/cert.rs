//! `lockgate cert`: a small authority, and certificates of nodes and clients, in files, with instructions for
//! their use.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use cli_support::certificates::{CA_CERTIFICATE, days, make_authority, put, read_authority};
use cli_support::durations;
use cli_support::output::say;
use lock_node::NodeId;
use transport_security::PeerName;
use transport_security::issue::CertificateRequest;

/// Directory of the files.
#[derive(Debug, Args)]
pub struct Dir {
    /// Directory of the files; existing files are never replaced
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

/// Maximum validity of a certificate, in days: a century. Dates in certificates have years of four digits.
const MAX_DAYS: u32 = 36_500;

/// Parses a validity.
fn valid_for(text: &str) -> Result<u32, String> {
    match durations::days(text)? {
        count if count <= MAX_DAYS => Ok(count),
        _ => Err(format!("at most {MAX_DAYS} days")),
    }
}

/// Certificates to create.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create an authority: ca.pem, for every node and client, and ca.key, which stays where it is
    Ca {
        #[command(flatten)]
        dir: Dir,
        /// Name of the authority
        #[arg(long, default_value = "Lockgate authority")]
        name: String,
        /// Validity in whole days
        #[arg(long = "valid-for", value_name = "TIME", alias = "days", default_value = "3650d", value_parser = valid_for)]
        days: u32,
    },
    /// Create a node's certificate, for its peers and for clients: node-ID.pem and node-ID.key
    Node {
        #[command(flatten)]
        dir: Dir,
        /// Name of the cluster, as in its nodes' configuration
        #[arg(long)]
        cluster: String,
        /// Id of the node
        #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u64).range(1..))]
        node: NodeId,
        /// Names and addresses by which clients call the node
        #[arg(long = "host", value_name = "HOST", required = true, value_delimiter = ',', value_parser = NonEmptyStringValueParser::new())]
        hosts: Vec<String>,
        /// Validity in whole days
        #[arg(long = "valid-for", value_name = "TIME", alias = "days", default_value = "365d", value_parser = valid_for)]
        days: u32,
    },
    /// Create a client's certificate: client-NAME.pem and client-NAME.key
    Client {
        #[command(flatten)]
        dir: Dir,
        /// Name of the client: `CN=NAME` in access control lists
        #[arg(long, value_parser = NonEmptyStringValueParser::new())]
        name: String,
        /// Validity in whole days
        #[arg(long = "valid-for", value_name = "TIME", alias = "days", default_value = "365d", value_parser = valid_for)]
        days: u32,
    },
}

/// Runs a command.
pub fn run(command: Command) -> anyhow::Result<()> {
    say(match command {
        Command::Ca {
            dir,
            name,
            days: count,
        } => ca(&dir.dir, &name, count)?,
        Command::Node {
            dir,
            cluster,
            node,
            hosts,
            days,
        } => of_node(&dir.dir, PeerName { cluster, node }, &hosts, days)?,
        Command::Client { dir, name, days } => of_client(&dir.dir, &name, days)?,
    })
}

fn ca(dir: &Path, name: &str, count: u32) -> anyhow::Result<String> {
    std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    let [certificate, key] = make_authority(dir, name, days(count))?;
    Ok(format!(
        "{} is the authority's certificate: every node and every client gets a copy.\n\
         {} is its private key. It can sign certificates of nodes and clients: keep it here, or better offline.\n\n\
         Next: lockgate cert node --dir {} --cluster NAME --node 1 --host HOST",
        certificate.display(),
        key.display(),
        dir.display()
    ))
}

fn of_node(dir: &Path, name: PeerName, hosts: &[String], count: u32) -> anyhow::Result<String> {
    let authority = read_authority(dir)?;
    let issued = authority.issue(&CertificateRequest::node(&name, hosts, days(count)))?;
    let file = |ending| dir.join(format!("node-{}.{ending}", name.node));
    let [certificate, key] = put(&issued, file("pem"), file("key"))?;
    Ok(format!(
        "{} is the certificate of {name} for the hosts {}, valid for {count} days.\n\
         {} is its private key.\n\n\
         In the configuration of node {} (paths are relative to that file):\n\n\
         [tls]\ncertificate = {}\nkey = {}\nca = {}",
        certificate.display(),
        hosts.join(", "),
        key.display(),
        name.node,
        quoted(&certificate),
        quoted(&key),
        quoted(&dir.join(CA_CERTIFICATE)),
    ))
}

fn of_client(dir: &Path, name: &str, count: u32) -> anyhow::Result<String> {
    let authority = read_authority(dir)?;
    let plain = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    let file_name: String = name
        .chars()
        .map(|character| if plain(character) { character } else { '_' })
        .collect();
    let issued = authority.issue(&CertificateRequest::client(name, days(count)))?;
    let file = |ending| dir.join(format!("client-{file_name}.{ending}"));
    let [certificate, key] = put(&issued, file("pem"), file("key"))?;
    let (ca, certificate, key) = (dir.join(CA_CERTIFICATE), certificate.display(), key.display());
    let ca = ca.display();
    Ok(format!(
        "{certificate} is the certificate of {name:?}, valid for {count} days.\n\
         {key} is its private key.\n\n\
         lockgate locks --ca {ca} --cert {certificate} --key {key} --server HOST:PORT\n\
         curl --cacert {ca} --cert {certificate} --key {key} https://HOST:PORT/v1/locks"
    ))
}

/// Quotes a path as a TOML string.
fn quoted(path: &Path) -> toml::Value {
    path.display().to_string().into()
}
