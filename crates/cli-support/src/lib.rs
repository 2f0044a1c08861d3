//! Shared parts of the `lockgate` commands that call a cluster: connection options of the command line, an
//! HTTP client for nodes, files with secrets and certificates, output, progress, signals, orphans, and exit
//! codes.
//!
//! The load generator, the migration, the launcher of local clusters and the command line itself use it. It
//! calls nodes only over HTTP. It must depend neither on the server (consensus, state machine, front ends)
//! nor on any command that uses it.

pub mod api_client;
pub mod certificates;
pub mod confirm;
pub mod connection_options;
pub mod contexts;
pub mod credentials;
pub mod durations;
pub mod exit_code;
pub mod format;
pub mod http_client;
pub mod open_files;
pub mod orphans;
pub mod output;
pub mod progress;
pub mod secret_file;
pub mod signals;
pub mod usage;

use anyhow::Context as _;

/// Runs a command's work on the calling thread, in a runtime of its own. One thread suffices, because a
/// command mostly waits for nodes.
pub fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the runtime")?
        .block_on(work)
}
