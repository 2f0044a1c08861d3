//! `mntr`: the server's state for monitoring programs, one value per line. `/metrics` has all metrics of a
//! node.

use std::fmt::Display;
use std::fs;

use lock_node::Role;
use nix::sys::resource::{Resource, getrlimit};

use super::clients::sessions;
use super::server::{mode, outstanding, version};
use super::text::{Mean, line};
use crate::front::Front;

pub(super) fn mntr(front: &Front) -> String {
    let mut text = String::new();
    let mut add = |name: &str, value: &dyn Display| line(&mut text, format_args!("zk_{name}\t{value}"));
    let node = front.node();
    let status = node.status();
    let mode = mode(&status);
    add("version", &version());
    add("server_state", &mode);

    let counts = front.counts();
    add("avg_latency", &Mean(counts.mean_ms));
    add("max_latency", &counts.max_ms);
    add("min_latency", &counts.min_ms);
    add("packets_received", &counts.received);
    add("packets_sent", &counts.sent);
    add("num_alive_connections", &front.connections());
    add("outstanding_requests", &outstanding(front));
    add("uptime", &front.uptime().as_millis());

    let (znodes, bytes) = node.read(|store| (store.node_count(), store.approximate_data_size()));
    let sessions = sessions(node);
    let ephemerals: u64 = sessions.iter().map(|session| u64::from(session.ephemerals)).sum();
    add("znode_count", &znodes);
    add("watch_count", &node.watch_counts().watches);
    add("ephemerals_count", &ephemerals);
    add("approximate_data_size", &bytes);
    add("global_sessions", &sessions.len());
    // All nodes know every session.
    add("local_sessions", &0);

    if let Some(open) = open_files() {
        add("open_file_descriptor_count", &open);
    }
    if let Ok((limit, _)) = getrlimit(Resource::RLIMIT_NOFILE) {
        add("max_file_descriptor_count", &limit);
    }

    if mode == "standalone" {
        return text;
    }
    let votes = |member: &&lock_node::MemberStatus| member.role != Role::Learner;
    add("quorum_size", &status.members.iter().filter(votes).count());
    if let Some(followers) = node.followers() {
        add("learners", &followers.answering);
        add("synced_followers", &followers.synced_voters);
        add("synced_observers", &followers.synced_learners);
    }
    text
}

/// Returns the number of open files of this process; `None` if the system does not report it.
fn open_files() -> Option<usize> {
    let open = fs::read_dir("/proc/self/fd").ok()?.count();
    // Reading the directory opens one.
    Some(open.saturating_sub(1))
}
