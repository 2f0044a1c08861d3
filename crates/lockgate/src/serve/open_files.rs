//! Limit of open files of the process. Every connection counts against it. A node without free file
//! descriptors cannot open a segment of its log, so connections must not exhaust them.

use anyhow::{Context, ensure};
use cli_support::open_files::raise;
use nix::sys::resource::{Resource, getrlimit};
use tracing::warn;

use crate::config::ServeConfig;

/// Number of files that a node opens besides the connections of clients: connections of peers (256), segments
/// of the log, snapshots and their transfers, the history, and the runtime.
const OWN_FILES: u64 = 1_024;

/// Raises the limit to the number that the maximum connections need, as far as the system allows. Logs a
/// warning if that does not suffice.
pub fn raise_limit(config: &ServeConfig) {
    if let Err(error) = raise(required(config)) {
        warn!(
            "{error:#}: the limit of open files is too low for the maximum number of connections; raise it (`ulimit -n`, \
             LimitNOFILE=), or allow fewer connections (http.max_connections, zookeeper.max_connections, \
             redis.max_connections)"
        );
    }
}

/// Returns an error with the numbers if the limit is below the one that the maximum connections need.
pub fn check_limit(config: &ServeConfig) -> anyhow::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("the limit of open files")?;
    let required = required(config);
    ensure!(
        hard >= required,
        "{required} open files are needed, but the limit is {hard}"
    );
    Ok(())
}

fn required(config: &ServeConfig) -> u64 {
    let connections = |listens: bool, connections: usize| if listens { connections as u64 } else { 0 };
    OWN_FILES
        + connections(true, config.http.max_connections)
        + connections(
            config.zookeeper_listen.is_some() || config.zookeeper_plain_listen.is_some(),
            config.zookeeper.max_connections,
        )
        + connections(config.redis_listen.is_some(), config.redis.max_connections)
        + connections(config.admin_listen.is_some(), config.admin.max_connections)
}
