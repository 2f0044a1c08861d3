//! `lockgate token`: creates, lists and revokes tokens, which have a role.

use std::time::Duration;

use clap::{Args, Subcommand};
use cli_support::format::Output;
use cli_support::output::{say, shown};
use lock_client::TokenView;

use super::exit::Failure;
use super::new_token::TokenOutput;
use super::policy::role;
use super::servers::Servers;
use super::table::table;

/// Commands on tokens. All of them need the right to administer at `/`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a token, and show it once
    Create(Create),
    /// List the tokens without their secrets
    List(List),
    /// Revoke a token: it is invalid from now on, and its sessions expire
    Revoke(Revoke),
}

/// `lockgate token create`
#[derive(Debug, Args)]
pub struct Create {
    /// Role of the token: a role of `lockgate policy`, or admin
    #[arg(long, value_parser = role)]
    role: String,
    /// Description: its user and its purpose
    #[arg(long, default_value = "")]
    description: String,
    /// Validity (such as 12h, 30d); without it the token is valid until it is revoked
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
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    servers: Servers,
}

/// `lockgate token revoke`
#[derive(Debug, Args)]
pub struct Revoke {
    /// Id of the token, as `lockgate token list` shows it: the part of its text between the first two
    /// underscores
    id: String,
    #[command(flatten)]
    servers: Servers,
}

/// Runs a command.
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
            let headings = ["ID", "ROLE", "MADE", "EXPIRES", "DESCRIPTION"];
            Ok(arguments.output.say(&tokens, || table(headings, &rows))?)
        }
        Command::Revoke(arguments) => {
            let client = arguments.servers.client()?;
            client.access().revoke_token(&arguments.id).await?;
            Ok(say(format!("token {} is revoked", shown(&arguments.id)))?)
        }
    }
}
