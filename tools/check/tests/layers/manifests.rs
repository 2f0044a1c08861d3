//! Dependencies between crates, read from their manifests.

use std::collections::BTreeSet;

/// Crates of the product that a product crate may depend on. Every other one is above it, or beside it.
pub const ALLOWED: [(&str, &[&str]); 23] = [
    ("fault-injection", &[]),
    ("instruments", &[]),
    ("listener", &[]),
    ("transport-security", &[]),
    ("zk-wire", &[]),
    ("znode-store", &["fault-injection"]),
    ("access-token", &["znode-store"]),
    ("lock-history", &["znode-store"]),
    ("znode-watch", &["znode-store"]),
    // The log knows no Raft implementation and no state machine.
    ("raft-log", &["fault-injection"]),
    // Replication knows no lock, session or znode.
    (
        "raft-node",
        &[
            "fault-injection",
            "instruments",
            "listener",
            "raft-log",
            "transport-security",
        ],
    ),
    // Observers know events, and not how commands are replicated.
    (
        "observers",
        &[
            "instruments",
            "lock-history",
            "raft-log",
            "znode-store",
            "znode-watch",
        ],
    ),
    (
        "lock-node",
        &[
            "fault-injection",
            "instruments",
            "listener",
            "lock-history",
            "observers",
            "raft-log",
            "raft-node",
            "znode-store",
            "znode-watch",
        ],
    ),
    // Front ends know the node, and not each other.
    (
        "lock-api",
        &[
            "access-token",
            "listener",
            "lock-node",
            "transport-security",
            "znode-store",
        ],
    ),
    (
        "zk-front",
        &[
            "access-token",
            "listener",
            "lock-node",
            "transport-security",
            "zk-wire",
            "znode-store",
        ],
    ),
    (
        "redis-front",
        &[
            "access-token",
            "fault-injection",
            "listener",
            "lock-node",
            "transport-security",
            "znode-store",
        ],
    ),
    ("lock-client", &["transport-security"]),
    // The fake has the state machine of the servers, and nothing else of them.
    ("lock-client-fake", &["lock-client", "znode-store"]),
    ("cli-support", &["lock-client", "transport-security"]),
    (
        "local-cluster",
        &[
            "access-token",
            "cli-support",
            "lock-client",
            "raft-node",
            "transport-security",
        ],
    ),
    (
        "load-generator",
        &[
            "cli-support",
            "local-cluster",
            "lock-client",
            "lock-node",
            "transport-security",
            "zk-wire",
            "znode-store",
        ],
    ),
    (
        "migration",
        &["cli-support", "transport-security", "zk-wire", "znode-store"],
    ),
    (
        "lockgate",
        &[
            "cli-support",
            "load-generator",
            "local-cluster",
            "lock-api",
            "lock-client",
            "lock-node",
            "migration",
            "raft-log",
            "redis-front",
            "transport-security",
            "zk-front",
            "znode-store",
        ],
    ),
];

/// Libraries that only one crate of the product uses.
pub const ONLY_IN: [(&str, &str); 4] = [
    ("openraft", "raft-node"),
    ("rustls", "transport-security"),
    ("axum", "lock-api"),
    ("sled", "lock-history"),
];

/// Returns the names of the dependencies of a manifest, without those of its tests.
pub fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut is_counted = false;
    let mut found = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            is_counted = line.ends_with("dependencies]") && !line.contains("dev-dependencies");
            continue;
        }
        let end = line.find(['.', ' ', '=']).unwrap_or(0);
        if is_counted && end > 0 && !line.starts_with('#') {
            found.insert(line[..end].to_owned());
        }
    }
    found
}

/// Returns the dependencies that the tables forbid the crate `name`.
pub fn forbidden(name: &str, manifest: &str) -> Vec<String> {
    let Some((_, allowed)) = ALLOWED.iter().find(|(listed, _)| *listed == name) else {
        return vec![format!("{name}: not in the table ALLOWED")];
    };
    let is_product = |crate_name: &str| ALLOWED.iter().any(|(listed, _)| *listed == crate_name);
    let is_elsewhere = |library: &str| {
        ONLY_IN
            .iter()
            .any(|(only, owner)| *only == library && *owner != name)
    };
    dependencies(manifest)
        .into_iter()
        .filter(|used| is_elsewhere(used) || is_product(used) && !allowed.contains(&used.as_str()))
        .map(|used| format!("{name} depends on {used}"))
        .collect()
}
