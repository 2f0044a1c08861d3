//! `lockgate znode acl`: access control lists of znodes.

use clap::{Args, Subcommand};
use cli_support::api_client::request_id;
use cli_support::format::Output;
use cli_support::http_client::encode_path;
use cli_support::output::{say, shown};
use serde_json::{Value, json};

use super::api::Api;
use super::exit::Failure;
use super::servers::Servers;
use super::table::table;

/// Commands on access control lists.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the access control list of a znode
    Get(Get),
    /// Replace the access control list of a znode
    Set(Set),
}

/// `lockgate znode acl get`
#[derive(Debug, Args)]
pub struct Get {
    /// The znode
    path: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    servers: Servers,
}

/// `lockgate znode acl set`
#[derive(Debug, Args)]
pub struct Set {
    /// The znode
    path: String,
    /// Entries as SCHEME:ID:PERMS, such as world:anyone:r, ip:10.0.0.0/8:rw or x509:CN=billing:cdrwa
    #[arg(required = true, value_parser = entry)]
    entries: Vec<Value>,
    /// Only if the list has this version: the stat's aversion
    #[arg(long)]
    version: Option<i32>,
    #[command(flatten)]
    servers: Servers,
}

/// Parses an entry. The id may contain colons, as those of digests and IPv6 addresses do.
fn entry(text: &str) -> Result<Value, String> {
    let parts = text
        .split_once(':')
        .and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once(':')?)));
    match parts {
        Some((scheme, (id, perms))) => Ok(json!({ "scheme": scheme, "id": id, "perms": perms })),
        None => Err("an entry is SCHEME:ID:PERMS".to_owned()),
    }
}

/// Runs a command.
pub async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Get(Get {
            path,
            output,
            servers,
        }) => {
            let request = format!("/v1/acl{}?linearizable=true", encode_path(&path));
            let document = Api::of(&servers)?.get(&request).await?;
            let rows: Vec<_> = document["acl"]
                .as_array()
                .into_iter()
                .flatten()
                .map(row)
                .collect();
            Ok(output.say(&document, || table(["SCHEME", "ID", "PERMS"], &rows))?)
        }
        Command::Set(Set {
            path,
            entries,
            version,
            servers,
        }) => {
            let version = version.map_or_else(String::new, |version| format!("?version={version}"));
            let request = format!("/v1/acl{}{version}", encode_path(&path));
            let body = json!({ "acl": entries, "request_id": request_id() });
            Api::of(&servers)?.call("PUT", &request, &body).await?;
            Ok(say(format!("{} has a new access control list", shown(&path)))?)
        }
    }
}

fn row(entry: &Value) -> [String; 3] {
    ["scheme", "id", "perms"].map(|field| entry[field].as_str().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_may_contain_colons() {
        let parsed = entry("ip:::1:cr").unwrap();
        assert_eq!(parsed, json!({ "scheme": "ip", "id": "::1", "perms": "cr" }));
        assert!(entry("world").is_err() && entry("world:anyone").is_err());
    }
}
