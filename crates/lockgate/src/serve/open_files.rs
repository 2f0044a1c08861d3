//! The process's limit of open files, which every connection counts against. A node that has none left can open no segment of its
//! log, so connections must never be what uses them up.

use anyhow::{Context, ensure};
use cli_support::open_files::raise;
use nix::sys::resource::{Resource, getrlimit};
use tracing::warn;

use crate::config::ServeConfig;

/// What a node opens beside the connections of clients: those of peers (256), the log's segments, snapshots and their
/// transfers, the history, and what the runtime needs.
const OWN_FILES: u64 = 1_024;

/// Raises the limit to what all places for clients need, as far as the system allows, and says so if that does not suffice.
pub fn raise_limit(config: &ServeConfig) {
    if let Err(error) = raise(required(config)) {
        warn!(
            "{error:#}: fewer files may be open than all clients need that are let in; raise the limit (`ulimit -n`, \
             LimitNOFILE=), or have fewer connections (http.max_connections, zookeeper.max_connections)"
        );
    }
}

/// Whether all clients that are let in can have their files. An error says how many can be open.
pub fn check_limit(config: &ServeConfig) -> anyhow::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("the limit of open files")?;
    let required = required(config);
    ensure!(
        hard >= required,
        "{required} files should be open, and the limit is {hard}"
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
        + connections(config.admin_listen.is_some(), config.admin.max_connections)
}
