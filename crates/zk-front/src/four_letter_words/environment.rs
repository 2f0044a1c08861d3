//! Four-letter words about the server's configuration, files and system.

use std::env;
use std::fmt::Display;
use std::net::SocketAddr;

use lock_node::FileSizes;
use nix::sys::utsname::uname;
use nix::unistd::{User, getuid};
use tracing::warn;

use super::server::version;
use super::text::line;
use crate::front::Front;

/// ZooKeeper's value of a number that is not configured.
const NOT_CONFIGURED: i32 = -1;

pub(super) fn conf(front: &Front) -> String {
    let config = front.node().config();
    let sessions = &config.sessions;
    let mut text = String::new();
    let mut add = |name: &str, value: &dyn Display| line(&mut text, format_args!("{name}={value}"));
    let ports = front.ports();
    let port = |address: Option<SocketAddr>| address.map_or(NOT_CONFIGURED, |address| address.port().into());
    add("clientPort", &port(ports.plain));
    add("secureClientPort", &port(ports.tls));
    if let Some(sizes) = file_sizes(front) {
        add("dataDir", &sizes.snapshot_dir.display());
        add("dataDirSize", &sizes.snapshot_bytes);
        add("dataLogDir", &sizes.log_dir.display());
        add("dataLogSize", &sizes.log_bytes);
    }
    add("maxClientCnxns", &front.config().max_connections_per_address);
    add("minSessionTimeout", &sessions.min.as_millis());
    add("maxSessionTimeout", &sessions.max.as_millis());
    add("clientPortListenBacklog", &NOT_CONFIGURED);
    add("serverId", &config.raft.node_id);
    text
}

pub(super) fn dirs(front: &Front) -> String {
    file_sizes(front).map_or_else(String::new, |sizes| {
        let FileSizes {
            snapshot_bytes,
            log_bytes,
            ..
        } = sizes;
        format!("datadir_size: {snapshot_bytes}\nlogdir_size: {log_bytes}\n")
    })
}

/// Returns the file sizes, or logs an error of the file system and returns `None`.
fn file_sizes(front: &Front) -> Option<FileSizes> {
    let sizes = front.node().file_sizes();
    sizes
        .inspect_err(|error| warn!(%error, "ZooKeeper front end: cannot read the size of the data directory"))
        .ok()
}

pub(super) fn envi() -> String {
    let mut text = "Environment:\n".to_owned();
    let mut add = |name: &str, value: &dyn Display| line(&mut text, format_args!("{name}={value}"));
    add("zookeeper.version", &version());
    // Values that the system does not report are omitted.
    if let Ok(system) = uname() {
        add("host.name", &system.nodename().display());
        add("os.name", &system.sysname().display());
        add("os.arch", &system.machine().display());
        add("os.version", &system.release().display());
    }
    if let Ok(Some(user)) = User::from_uid(getuid()) {
        add("user.name", &user.name);
        add("user.home", &user.dir.display());
    }
    if let Ok(directory) = env::current_dir() {
        add("user.dir", &directory.display());
    }
    text
}
