//! `lockgate access`: whether it counts who may do what, and the step from which on it does.

use clap::{Args, Subcommand};
use cli_support::output::{say, shown};
use lock_client::{AccessGrant, Caller};

use super::exit::Failure;
use super::locks::say_json;
use super::new_token::TokenOutput;
use super::servers::Servers;

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Secure the cluster, for good, and make the first administrator's token. Only the operator of a node may: give that node
    /// with --server, and operator.token of its data directory with --token-file
    Secure(Secure),
    /// Show whether the cluster is secured, and as whom it knows this caller
    Show(Show),
}

/// `lockgate access secure`
#[derive(Debug, Args)]
pub struct Secure {
    /// A line about the administrator's token, for people
    #[arg(long, default_value = "")]
    description: String,
    /// What everybody may, whether they show something or not: RIGHTS:PLACE, again for more. With all:/ nobody is stopped yet
    #[arg(long = "anonymous", value_name = "GRANT")]
    anonymous: Vec<AccessGrant>,
    #[command(flatten)]
    out: TokenOutput,
    #[command(flatten)]
    servers: Servers,
}

/// `lockgate access show`
#[derive(Debug, Args)]
pub struct Show {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    servers: Servers,
}

/// Does one of them.
pub async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Secure(arguments) => {
            let access = arguments.servers.client()?.access();
            let anonymous = Some(&arguments.anonymous[..]).filter(|grants| !grants.is_empty());
            let made = async { Ok(access.secure(&arguments.description, anonymous).await?) };
            arguments.out.create_and_write(made).await
        }
        Command::Show(arguments) => {
            let view = arguments.servers.client()?.access().status().await?;
            if arguments.json {
                return Ok(say_json(&view)?);
            }
            let secured = match view.secured {
                true => "The cluster is secured: roles say who may do what.",
                false => "The cluster is not secured: roles do not count yet.",
            };
            let Caller { kind, name, role, .. } = view.you;
            let name = name.map_or(String::new(), |name| format!(" {name}"));
            let role = role.map_or("no role".to_owned(), |role| format!("role {role}"));
            let you = shown(&format!("{kind}{name}, with {role}"));
            Ok(say(format!("{secured}\nThis caller is {you}."))?)
        }
    }
}
