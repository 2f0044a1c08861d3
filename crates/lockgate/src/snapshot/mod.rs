//! `lockgate snapshot`: backups on the command line. `save` downloads one from a running node; `inspect` and
//! `restore` need no node. `lock_node::backup` defines the contents of a backup, and the effects of a
//! restore.

mod inspect;
mod save;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::Subcommand;
use cli_support::connection_options::{Connection, ConnectionOptions};
use cli_support::ensure_usage;
use cli_support::format::Output;
use cli_support::output::say;
use cli_support::progress::Progress;
use lock_node::backup::{Inspection, MOVED_AT_LEAST, RestoreOptions, Restored, restore_with_progress};

pub use self::inspect::List;
pub use self::save::{NoBackup, SaveError, save};
use crate::config::ServeConfig;

/// Commands on backups.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Download a backup from a running node, check all of it, and write it to FILE
    Save {
        /// New file; an existing file is never replaced
        file: PathBuf,
        /// Save the node's own state without contacting the leader, for a cluster that has lost its quorum.
        /// Name that node alone with --server
        #[arg(long)]
        stale: bool,
        /// Format of the result
        #[command(flatten)]
        output: Output,
        /// The first server that has a backup sends it
        #[command(flatten)]
        connection: ConnectionOptions,
    },
    /// Show the contents of a backup, after all checksums and the state's digest are verified
    Inspect {
        /// The backup
        file: PathBuf,
        /// Format of the result
        #[command(flatten)]
        output: Output,
        /// Also list these contents
        #[arg(long, value_enum)]
        list: Vec<List>,
    },
    /// Create the data directory of a new cluster's first node from a backup
    Restore {
        /// The backup
        file: PathBuf,
        /// Configuration of the member with the lowest id; its data directory must be empty
        #[arg(long, value_name = "FILE", env = "LOCKGATE_CONFIG")]
        config: Option<PathBuf>,
        /// Move the position forward by at least this number; the age of the backup sets a minimum
        #[arg(long, value_name = "POSITIONS", default_value_t = 0)]
        move_at_least: u64,
        /// Keep the sessions of the backup, with their locks. Only if the old cluster did nothing after the
        /// backup: otherwise two clients may hold the same lock
        #[arg(long)]
        keep_sessions: bool,
    },
}

/// Runs a command.
pub async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Save {
            file,
            stale,
            output,
            connection,
        } => {
            let saved = save_from_any(&connection.connection()?, &file, stale).await?;
            let text = || {
                let (cluster, text) = (&saved.head.cluster, inspect::text(&saved));
                format!(
                    "{} is a complete backup of cluster {cluster:?}.\n\n{text}",
                    file.display()
                )
            };
            output.say(&inspect::document(&saved), text)
        }
        Command::Inspect { file, output, list } => inspect::run(&file, output, &list),
        Command::Restore {
            file,
            config,
            move_at_least,
            keep_sessions,
        } => {
            let config = ServeConfig::load(config.as_deref())?.config.node;
            let options = RestoreOptions {
                move_at_least,
                keep_sessions,
                now_ms: now_ms(),
            };
            let restored = {
                let mut progress = read_progress(&file, "reading the backup");
                restore_with_progress(&file, &config, options, &mut progress)
                    .context("nothing was restored")?
            };
            let data_dir = config.raft.data_dir.display().to_string();
            say(restore_report(&restored, &data_dir, config.raft.members.len()))
        }
    }
}

/// Saves a backup of the first server that sends one.
async fn save_from_any(connection: &Connection, file: &Path, stale: bool) -> anyhow::Result<Inspection> {
    let nodes = connection.addresses()?;
    ensure_usage!(
        !stale || nodes.len() == 1,
        "--stale saves the state of one node: name that node alone with --server"
    );
    let mut failures = Vec::new();
    for node in &nodes {
        match save(node, &connection.credentials, file, !stale).await {
            Ok(saved) => return Ok(saved),
            Err(error) if error.may_be_better_elsewhere() => failures.push(format!("{node}: {error}")),
            Err(error) => return Err(error).with_context(|| format!("saving a backup of {node}")),
        }
    }
    Err(NoBackup(failures.join("; ")).into())
}

/// Returns a function that shows how much of a file is read. It shows nothing for a file without a known
/// length, about which the reader reports the error.
pub(crate) fn read_progress(file: &Path, what: &'static str) -> impl FnMut(u64) + use<> {
    let bytes = std::fs::metadata(file).map_or(0, |about| about.len());
    let mut progress = Progress::new(what);
    move |read| progress.at(read, bytes)
}

fn restore_report(restored: &Restored, data_dir: &str, members: usize) -> String {
    let Restored {
        backup,
        zxid_before,
        zxid,
        moved_by,
        ended_sessions,
        znodes,
        ..
    } = restored;
    let reason = match *moved_by {
        MOVED_AT_LEAST => "the minimum of a restore",
        _ => "more than the old cluster can have used since the backup",
    };
    let next = match members {
        1 => "Start the node; it is the whole cluster.".to_owned(),
        _ => format!(
            "Start this node, and the other {} with empty data directories; it replicates everything to them.",
            members - 1
        ),
    };
    format!(
        "Created the first node of a new cluster in {data_dir}.\n\
         \n  cluster id     {}\
         \n  backup         of cluster {:?}, made by node {} at {}\
         \n  znodes         {znodes}\
         \n  sessions       {ended_sessions} ended\
         \n  position       moved from {zxid_before} to {zxid}, by {moved_by}: {reason}\
         \n  fencing tokens are larger than {zxid} from now on\
         \n\n{next}",
        inspect::hex(&restored.cluster_id),
        backup.cluster,
        backup.node_id,
        inspect::at(backup.made_at_ms),
    )
}

fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}
