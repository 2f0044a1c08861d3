//! Four-letter words about the server as a whole: liveness, role and counters.

use std::env;
use std::fmt::Display;
use std::fs;
use std::sync::atomic::Ordering;

use lock_node::{ClusterStatus, Role};

use super::clients;
use super::text::{Mean, line, minute};
use crate::front::{Client, Front};

/// Version of ZooKeeper whose protocol and words this server implements, and its own version. Clients derive
/// the supported requests from the three numbers; the rest is for people.
pub(super) const VERSION: &str = concat!("3.8.0-lockgate-", env!("CARGO_PKG_VERSION"));

/// Returns [`VERSION`] with the modification time of the program's file. The program itself contains no build
/// time, so that builds are reproducible.
pub(super) fn version() -> String {
    let written = env::current_exe()
        .and_then(fs::metadata)
        .and_then(|file| file.modified());
    match written {
        Ok(written) => format!("{VERSION}, built on {}", minute(written)),
        // The file was replaced while the program runs.
        Err(_) => VERSION.to_owned(),
    }
}

/// Returns the node's role in ZooKeeper's terms. A cluster of one node is a standalone server.
pub(super) fn mode(status: &ClusterStatus) -> &'static str {
    match status.role {
        _ if status.members.len() == 1 => "standalone",
        Role::Leader => "leader",
        Role::Follower | Role::Candidate => "follower",
        Role::Learner => "observer",
    }
}

/// Returns the number of unanswered requests of all clients.
pub(super) fn outstanding(front: &Front) -> u64 {
    let clients = front.clients();
    let outstanding = clients
        .iter()
        .map(|client| client.outstanding.load(Ordering::Relaxed));
    outstanding.sum()
}

pub(super) fn ruok() -> String {
    "imok".to_owned()
}

/// There are no read-only nodes: a node that cannot write does not serve.
pub(super) fn isro(serves: bool) -> String {
    if serves { "rw" } else { "null" }.to_owned()
}

pub(super) fn srst(front: &Front) -> String {
    front.reset_counts();
    "Server stats reset.\n".to_owned()
}

pub(super) fn srvr(front: &Front) -> String {
    format!("Zookeeper version: {}\n{}", version(), figures(front))
}

pub(super) fn stat(front: &Front, peer: &Client) -> String {
    let mut text = format!("Zookeeper version: {}\nClients:\n", version());
    for client in front.clients() {
        clients::brief(&mut text, front, peer, &client);
        text.push_str(")\n");
    }
    text.push('\n');
    text.push_str(&figures(front));
    text
}

fn figures(front: &Front) -> String {
    let counts = front.counts();
    let status = front.node().status();
    let (zxid, znodes) = front.node().read(|store| (store.zxid().0, store.node_count()));
    let mut text = String::new();
    let mut add = |name: &str, value: &dyn Display| line(&mut text, format_args!("{name}: {value}"));
    let latency = format_args!("{}/{}/{}", counts.min_ms, Mean(counts.mean_ms), counts.max_ms).to_string();
    add("Latency min/avg/max", &latency);
    add("Received", &counts.received);
    add("Sent", &counts.sent);
    add("Connections", &front.connections());
    add("Outstanding", &outstanding(front));
    add("Zxid", &format_args!("{zxid:#x}"));
    add("Mode", &mode(&status));
    add("Node count", &znodes);
    text
}
