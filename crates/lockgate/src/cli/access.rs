//! `lockgate access`: the switch that secures a cluster, and its state.

use clap::{Args, Subcommand};
use cli_support::format::Output;
use cli_support::output::{say, shown};
use lock_client::{AccessGrant, Caller};

use super::exit::Failure;
use super::new_token::TokenOutput;
use super::servers::Servers;

/// Commands on access control.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Secure the cluster, permanently, and create the first administrator's token. Only the operator of a
    /// node may: name that node with --server, and operator.token of its data directory with --token-file
    Secure(Secure),
    /// Show whether the cluster is secured, and how it identifies this caller
    Show(Show),
}

/// `lockgate access secure`
#[derive(Debug, Args)]
pub struct Secure {
    /// Description of the administrator's token
    #[arg(long, default_value = "")]
    description: String,
    /// Rights of every caller, also without credentials: RIGHTS:PLACE; can be repeated. With all:/ no request
    /// is rejected yet
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
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    servers: Servers,
}

/// Runs a command.
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
            if arguments.output.is_document() {
                return Ok(arguments.output.say(&view, String::new)?);
            }
            let secured = match view.secured {
                true => "The cluster is secured: roles decide what each caller may do.",
                false => "The cluster is not secured: roles have no effect yet.",
            };
            let Caller { kind, name, role, .. } = view.you;
            let name = name.map_or(String::new(), |name| format!(" {name}"));
            let role = role.map_or("no role".to_owned(), |role| format!("role {role}"));
            let you = shown(&format!("{kind}{name}, with {role}"));
            Ok(say(format!("{secured}\nThis caller is {you}."))?)
        }
    }
}
