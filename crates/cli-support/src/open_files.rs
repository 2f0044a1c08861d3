//! Limit of open files of the process. Every connection counts against it.

use anyhow::{Context, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing::info;

/// Raises the soft limit so that `wanted` files can be open. If the hard limit is lower, the error names it.
pub fn raise(wanted: u64) -> anyhow::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("the limit of open files")?;
    if soft >= wanted {
        return Ok(());
    }
    let raised = wanted.min(hard);
    if raised > soft {
        setrlimit(Resource::RLIMIT_NOFILE, raised, hard).context("raising the limit of open files")?;
        info!(from = soft, to = raised, "raised the limit of open files");
    }
    ensure!(
        raised >= wanted,
        "{wanted} open files are needed, but the hard limit is {raised}: raise it (`ulimit -Hn`)"
    );
    Ok(())
}
