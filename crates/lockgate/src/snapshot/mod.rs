//! `lockgate snapshot`: backups on the command line. `save` asks a running node for one; `inspect` and `restore` need
//! none. What a backup is, and what a restore does with it, stands in `raft_node::backup`.

mod inspect;
mod save;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::Subcommand;
use cli_support::connection_options::{ConnectionOptions, addresses};
use cli_support::output::say;
use cli_support::progress::Progress;
use raft_node::backup::{MOVED_AT_LEAST, RestoreOptions, Restored, restore_told};

pub use self::inspect::List;
pub use self::save::{SaveError, save};
use crate::config::ServeConfig;

/// What can be done with backups.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Download a backup from a running node, check all of it, and put it into FILE
    Save {
        /// Where to; an existing file is never replaced
        file: PathBuf,
        /// Any node of the cluster: HOST:PORT of its HTTP API
        #[arg(long, default_value = "127.0.0.1:7401", value_name = "HOST:PORT")]
        node: String,
        /// Take what the node knows, without asking the leader: for a cluster that has lost its quorum
        #[arg(long)]
        stale: bool,
        /// For nodes with TLS, and clusters that are secured
        #[command(flatten)]
        secured: ConnectionOptions,
    },
    /// Say what is in a backup, after all checksums and the state's digest were found right
    Inspect {
        /// The backup
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// List what is in it, too
        #[arg(long, value_enum)]
        list: Vec<List>,
    },
    /// Make the data directory of a new cluster's first node out of a backup
    Restore {
        /// The backup
        file: PathBuf,
        /// The configuration of the member with the lowest id; its data directory must be empty
        #[arg(long, value_name = "FILE", env = "LOCKGATE_CONFIG")]
        config: Option<PathBuf>,
        /// Move the position forward by at least so many; it is never less than what the age of the backup asks for
        #[arg(long, value_name = "POSITIONS", default_value_t = 0)]
        move_at_least: u64,
        /// Let the sessions of the backup live on, with their locks. Only if the old cluster did nothing after the backup:
        /// else two clients may hold the same lock
        #[arg(long)]
        keep_sessions: bool,
    },
}

/// Does one of them.
pub async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Save {
            file,
            node,
            stale,
            secured,
        } => {
            let credentials = secured.credentials()?;
            let node = addresses("--node", &[node], &credentials)?.remove(0);
            let saved = save(&node, &credentials, &file, !stale)
                .await
                .with_context(|| format!("saving a backup of {node}"))?;
            say(format!(
                "{} is a whole backup of cluster {:?}.\n\n{}",
                file.display(),
                saved.head.cluster,
                inspect::text(&saved)
            ))
        }
        Command::Inspect { file, json, list } => say(inspect::run(&file, json, &list)?),
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
                restore_told(&file, &config, options, &mut progress).context("nothing was restored")?
            };
            let data_dir = config.data_dir.display().to_string();
            say(restore_report(&restored, &data_dir, config.members.len()))
        }
    }
}

/// Shows how far a file was read. Of a file whose length is not to be had nothing is shown: its reader says what is wrong.
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
        MOVED_AT_LEAST => "the least that a restore moves it",
        _ => "more than the old cluster can have used since",
    };
    let next = match members {
        1 => "Start the node; it is the cluster.".to_owned(),
        _ => format!(
            "Start this node, and the other {} with empty data directories; they get everything from it.",
            members - 1
        ),
    };
    format!(
        "A new cluster begins in {data_dir}.\n\
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
