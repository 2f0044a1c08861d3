//! `lockgate context`: the named clusters of the user's configuration file.

use std::path::Path;

use clap::Subcommand;
use cli_support::contexts::{ClusterContext, ContextFile};
use cli_support::format::Output;
use cli_support::output::{say, shown};
use cli_support::usage::UsageError;
use serde_json::{Value, json};

use super::exit::Failure;
use super::table::table;

/// Commands on contexts. The file is `lockgate/config.toml` in `$XDG_CONFIG_HOME`, by default `~/.config`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the contexts; a star marks the current one
    List {
        #[command(flatten)]
        output: Output,
    },
    /// Make a context the current one, which applies if neither options nor variables name a cluster
    Use {
        /// Name of the context
        name: String,
    },
    /// Show a context, without its token
    Show {
        /// Name of the context (default: the current one)
        name: Option<String>,
        #[command(flatten)]
        output: Output,
    },
}

/// Runs a command.
pub fn run(command: Command) -> Result<(), Failure> {
    let file = ContextFile::read(&|name| std::env::var_os(name))?;
    match command {
        Command::List { output } => {
            let document = |(name, context): (&String, &ClusterContext)| document(&file, name, context);
            let documents: Vec<Value> = file.contexts().iter().map(document).collect();
            let row = |(name, context): (&String, &ClusterContext)| {
                let mark = if file.current() == Some(name) { "*" } else { "" };
                [mark.to_owned(), name.clone(), context.servers.join(",")]
            };
            let rows: Vec<_> = file.contexts().iter().map(row).collect();
            Ok(output.say(&documents, || table(["", "CONTEXT", "SERVERS"], &rows))?)
        }
        Command::Use { name } => {
            file.set_current(&name)?;
            Ok(say(format!("{} is the current context", shown(&name)))?)
        }
        Command::Show { name, output } => {
            let Some(name) = name.as_deref().or(file.current()) else {
                let message = format!("{}: there is no current context", file.path().display());
                return Err(anyhow::Error::from(UsageError(message)).into());
            };
            let context = file.context(name).map_err(anyhow::Error::from)?;
            let path = |path: &Option<std::path::PathBuf>| {
                path.as_deref().unwrap_or(Path::new("-")).display().to_string()
            };
            let rows = [
                ["file", &file.path().display().to_string()],
                ["context", name],
                ["servers", &context.servers.join(",")],
                ["ca", &path(&context.ca)],
                ["cert", &path(&context.cert)],
                ["key", &path(&context.key)],
                ["token_file", &path(&context.token_file)],
                ["token", if context.token.is_some() { "(hidden)" } else { "-" }],
            ];
            let rows = rows.map(|row| row.map(str::to_owned));
            let text = || table(["SETTING", "VALUE"], &rows);
            Ok(output.say(&document(&file, name, context), text)?)
        }
    }
}

fn document(file: &ContextFile, name: &str, context: &ClusterContext) -> Value {
    let mut document = serde_json::to_value(context).unwrap_or_default();
    document["name"] = json!(name);
    document["current"] = json!(file.current() == Some(name));
    document["has_token"] = json!(context.token.is_some() || context.token_file.is_some());
    document
}
