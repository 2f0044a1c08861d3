//! `lockgate znode`: commands on the tree of znodes.

use std::io::{IsTerminal, Read};
use std::time::Duration;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::{Args, Subcommand, ValueEnum};
use cli_support::format::Output;
use cli_support::output::{say, say_bytes, shown, shown_lines, shown_on_terminal};
use cli_support::usage::UsageError;
use lock_client::{CreateMode, WatchKind};
use serde_json::json;

use super::exit::Failure;
use super::servers::Servers;
use super::table::table;
use super::{acl, transaction};

/// Commands on znodes.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the children of a znode
    Ls(Ls),
    /// Print the data of a znode
    Get(Get),
    /// Replace the data of a znode
    Set(Set),
    /// Create a znode
    Create(Create),
    /// Delete a znode
    Rm(Rm),
    /// Show the stat of a znode
    Stat(Stat),
    /// Wait for changes of a znode
    Watch(Watch),
    /// Show or replace the access control list of a znode
    Acl {
        #[command(subcommand)]
        command: acl::Command,
    },
    /// Make several changes of znodes, all or none
    Transaction(transaction::Arguments),
}

/// Runs a command.
pub async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Ls(arguments) => ls(arguments).await,
        Command::Get(arguments) => get(arguments).await,
        Command::Set(arguments) => set(arguments).await,
        Command::Create(arguments) => create(arguments).await,
        Command::Rm(arguments) => rm(arguments).await,
        Command::Stat(arguments) => stat(arguments).await,
        Command::Watch(arguments) => watch(arguments).await,
        Command::Acl { command } => acl::run(command).await,
        Command::Transaction(arguments) => transaction::transaction(arguments).await,
    }
}

/// `lockgate ls`
#[derive(Debug, Args)]
pub struct Ls {
    /// The znode
    #[arg(default_value = "/")]
    path: String,
    /// Also show version, size, children and time of the last change
    #[arg(short, long)]
    long: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    servers: Servers,
}

/// `lockgate get`
#[derive(Debug, Args)]
pub struct Get {
    /// The znode
    path: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    servers: Servers,
}

/// `lockgate set`
#[derive(Debug, Args)]
pub struct Set {
    /// The znode
    path: String,
    /// New data; `-` reads it from standard input
    #[arg(allow_hyphen_values = true)]
    data: String,
    /// Only if the znode has this version
    #[arg(long)]
    version: Option<i32>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    servers: Servers,
}

/// Kinds of znodes that outlive a command. (An ephemeral znode would be deleted with the command's session.)
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    /// Exists until it is deleted
    Persistent,
    /// Persistent, with a sequence number after its name
    PersistentSequential,
    /// Deleted some time after its last child
    Container,
}

/// `lockgate create`
#[derive(Debug, Args)]
pub struct Create {
    /// The znode
    path: String,
    /// Data; `-` reads it from standard input
    #[arg(default_value = "", allow_hyphen_values = true)]
    data: String,
    /// Kind of the znode
    #[arg(long, value_enum, default_value = "persistent")]
    mode: Kind,
    /// Delete the znode when it has no children and was not written for this time
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    ttl: Option<Duration>,
    /// Create missing parents
    #[arg(short, long)]
    parents: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    servers: Servers,
}

/// `lockgate rm`
#[derive(Debug, Args)]
pub struct Rm {
    /// The znode
    path: String,
    /// Also delete all znodes below it
    #[arg(short, long)]
    recursive: bool,
    /// Only if the znode has this version
    #[arg(long)]
    version: Option<i32>,
    #[command(flatten)]
    servers: Servers,
}

/// `lockgate stat`
#[derive(Debug, Args)]
pub struct Stat {
    /// The znode
    path: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    servers: Servers,
}

/// Kind of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Watched {
    /// Changes of the data of an existing znode
    Data,
    /// Changes of the children of an existing znode
    Children,
    /// Creation, deletion and changes of a znode that may not exist yet
    Exists,
    /// Changes of a znode that may not exist yet, and of all znodes below it
    Recursive,
}

/// `lockgate watch`
#[derive(Debug, Args)]
pub struct Watch {
    /// The znode
    path: String,
    /// Changes to watch
    #[arg(long, value_enum, default_value = "exists")]
    kind: Watched,
    /// Exit after the first change. Without it changes are printed until the command is interrupted; several
    /// at once may be printed as one
    #[arg(long)]
    once: bool,
    /// Report changes since this position at once: a stat's mzxid, or pzxid for children. 0: if the znode
    /// exists
    #[arg(long, value_name = "ZXID", alias = "after")]
    zxid: Option<u64>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    servers: Servers,
}

/// Returns the data of an argument, or of standard input.
fn data(argument: String) -> anyhow::Result<Vec<u8>> {
    if argument != "-" {
        return Ok(argument.into_bytes());
    }
    let mut data = Vec::new();
    std::io::stdin()
        .read_to_end(&mut data)
        .context("reading standard input")?;
    Ok(data)
}

/// Runs `lockgate ls`.
async fn ls(arguments: Ls) -> Result<(), Failure> {
    let children = arguments
        .servers
        .client()?
        .znodes()
        .children(&arguments.path)
        .await?;
    if arguments.output.is_document() {
        return Ok(arguments.output.say(&children, String::new)?);
    }
    if !arguments.long {
        for child in children {
            say(shown_on_terminal(&child.name))?;
        }
        return Ok(());
    }
    let row = |child: &lock_client::Child| {
        let stat = &child.stat;
        [
            child.name.clone(),
            stat.version.to_string(),
            stat.data_length.to_string(),
            stat.num_children.to_string(),
            stat.modified_at.clone(),
        ]
    };
    let rows: Vec<_> = children.iter().map(row).collect();
    Ok(say(table(
        ["NAME", "VERSION", "BYTES", "CHILDREN", "MODIFIED"],
        &rows,
    ))?)
}

/// Runs `lockgate get`.
async fn get(arguments: Get) -> Result<(), Failure> {
    let znode = arguments.servers.client()?.znodes().get(&arguments.path).await?;
    if arguments.output.is_document() {
        // In the form of the API.
        let (name, data) = match znode.text() {
            Some(text) => ("data", text.to_owned()),
            None => ("data_base64", BASE64.encode(&znode.data)),
        };
        let document = json!({ "path": arguments.path, name: data, "stat": znode.stat });
        return Ok(arguments.output.say(&document, String::new)?);
    }
    if std::io::stdout().is_terminal() {
        // The data is text of other people, and a terminal interprets control characters.
        return Ok(say(match znode.text() {
            Some(text) => shown_lines(text.strip_suffix('\n').unwrap_or(text)),
            None => znode.data.escape_ascii().to_string(),
        })?);
    }
    // Text gets a line feed at its end; other data is printed unchanged.
    let ends_its_line = znode
        .text()
        .is_none_or(|text| text.is_empty() || text.ends_with('\n'));
    let mut bytes = znode.data.to_vec();
    if !ends_its_line {
        bytes.push(b'\n');
    }
    Ok(say_bytes(&bytes)?)
}

/// Runs `lockgate set`.
async fn set(arguments: Set) -> Result<(), Failure> {
    let znodes = arguments.servers.client()?.znodes();
    let stat = znodes
        .set(&arguments.path, data(arguments.data)?, arguments.version)
        .await?;
    Ok(arguments
        .output
        .say(&stat, || format!("version {}", stat.version))?)
}

/// Runs `lockgate create`.
async fn create(arguments: Create) -> Result<(), Failure> {
    let mode = match (arguments.mode, arguments.ttl) {
        (Kind::Persistent, None) => CreateMode::Persistent,
        (Kind::PersistentSequential, None) => CreateMode::PersistentSequential,
        (Kind::Container, None) => CreateMode::Container,
        (Kind::Persistent, Some(ttl)) => CreateMode::Ttl(ttl),
        (Kind::PersistentSequential, Some(ttl)) => CreateMode::TtlSequential(ttl),
        (Kind::Container, Some(_)) => {
            let message = "a container takes no --ttl: it is deleted after its last child";
            return Err(anyhow::Error::from(UsageError(message.to_owned())).into());
        }
    };
    let znodes = arguments.servers.client()?.znodes();
    let data = data(arguments.data)?;
    let (path, stat) = znodes
        .create(&arguments.path, data, mode, arguments.parents)
        .await?;
    let document = json!({ "path": path, "stat": stat });
    Ok(arguments.output.say(&document, || shown_on_terminal(&path))?)
}

/// Runs `lockgate rm`.
async fn rm(arguments: Rm) -> Result<(), Failure> {
    let znodes = arguments.servers.client()?.znodes();
    Ok(znodes
        .delete(&arguments.path, arguments.version, arguments.recursive)
        .await?)
}

/// Runs `lockgate stat`.
async fn stat(arguments: Stat) -> Result<(), Failure> {
    let stat = arguments
        .servers
        .client()?
        .znodes()
        .get(&arguments.path)
        .await?
        .stat;
    if arguments.output.is_document() {
        return Ok(arguments.output.say(&stat, String::new)?);
    }
    let fields = serde_json::to_value(&stat).context("the stat as JSON")?;
    let fields = fields.as_object().context("a stat has fields")?;
    for (name, value) in fields {
        let value = match value {
            serde_json::Value::String(text) => shown(text),
            serde_json::Value::Null => "-".to_owned(),
            other => other.to_string(),
        };
        say(format!("{name:<15}  {value}"))?;
    }
    Ok(())
}

/// Runs `lockgate watch`.
async fn watch(arguments: Watch) -> Result<(), Failure> {
    let znodes = arguments.servers.client()?.znodes();
    let kind = match arguments.kind {
        Watched::Data => WatchKind::Data,
        Watched::Children => WatchKind::Children,
        Watched::Exists => WatchKind::Exists,
        Watched::Recursive => WatchKind::Recursive,
    };
    let mut seen = arguments.zxid;
    loop {
        let event = match seen {
            Some(seen) => znodes.watch_after(&arguments.path, kind, seen).await?,
            None => znodes.watch(&arguments.path, kind).await?,
        };
        let line = || format!("{:<16}  {}  at {}", event.event, shown(&event.path), event.zxid);
        if !arguments.output.say_next(&event, line)? || arguments.once {
            return Ok(());
        }
        seen = Some(event.zxid).filter(|_| kind != WatchKind::Recursive);
    }
}
