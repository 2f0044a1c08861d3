//! `lockgate token`: secrets that stand for a role, made, listed and revoked.

use std::time::Duration;

use clap::{Args, Subcommand};
use cli_support::output::{say, shown};
use lock_client::TokenView;

use super::exit::Failure;
use super::locks::say_json;
use super::new_token::TokenOutput;
use super::policy::role;
use super::servers::Servers;
use super::table::table;

/// What can be done with tokens. All of it needs the right to administer at `/`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a token, and show it this once
    Create(Create),
    /// List the tokens: all but their secrets
    List(List),
    /// Revoke a token: from now on it counts for nothing, and its sessions end with their time
    Revoke(Revoke),
}

/// `lockgate token create`
#[derive(Debug, Args)]
pub struct Create {
    /// What it stands for: a role of `lockgate policy`, or admin
    #[arg(long, value_parser = role)]
    role: String,
    /// A line for people: who has it, and what for
    #[arg(long, default_value = "")]
    description: String,
    /// After this time it counts no more (such as 12h, 30d); without it, until it is revoked
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    expires_in: Option<Duration>,
    #[command(flatten)]
    out: TokenOutput,
    #[command(flatten)]
    servers: Servers,
}

/// `lockgate token list`
#[derive(Debug, Args)]
pub struct List {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    servers: Servers,
}

/// `lockgate token revoke`
#[derive(Debug, Args)]
pub struct Revoke {
    /// The token's name, as `lockgate token list` shows it: what stands between the first two underscores of its text
    id: String,
    #[command(flatten)]
    servers: Servers,
}

/// Does one of them.
pub async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Create(arguments) => {
            let access = arguments.servers.client()?.access();
            let (role, description) = (&arguments.role, &arguments.description);
            let made = async {
                Ok(access
                    .create_token(role, description, arguments.expires_in)
                    .await?)
            };
            arguments.out.create_and_write(made).await
        }
        Command::List(arguments) => {
            let tokens = arguments.servers.client()?.access().tokens().await?;
            if arguments.json {
                return Ok(say_json(&tokens)?);
            }
            let row = |token: &TokenView| {
                [
                    token.id.clone(),
                    token.role.clone(),
                    token.created_at.clone().unwrap_or_default(),
                    token.expires_at.clone().unwrap_or_else(|| "never".to_owned()),
                    token.description.clone(),
                ]
            };
            let rows: Vec<_> = tokens.iter().map(row).collect();
            Ok(say(table(
                ["ID", "ROLE", "MADE", "EXPIRES", "DESCRIPTION"],
                &rows,
            ))?)
        }
        Command::Revoke(arguments) => {
            let client = arguments.servers.client()?;
            client.access().revoke_token(&arguments.id).await?;
            Ok(say(format!("token {} is revoked", shown(&arguments.id)))?)
        }
    }
}
