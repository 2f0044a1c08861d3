//! All operations, one file for each group, and their shared parts: examples and failures.

mod access;
mod batch;
mod cluster;
mod leases;
mod locks;
mod multilock;
mod namespaces;
mod sessions;
mod terraform;
mod znodes;

use super::operation::Operation;
use crate::http::problem::Code;

/// A group of operations.
pub struct Tag {
    /// Name of the group.
    pub name: &'static str,
    /// Subject.
    pub description: &'static str,
    /// Operations.
    pub operations: Vec<Operation>,
}

/// Returns all groups, in reading order.
pub fn tags() -> Vec<Tag> {
    vec![
        Tag {
            name: "sessions",
            description: "A session represents a live client. It lives as long as the client sends heartbeats, and its locks and ephemeral znodes end with it.",
            operations: sessions::operations(),
        },
        Tag {
            name: "locks",
            description: "Exclusive, shared and upgradeable locks and semaphores, with first-come, first-served queues. Encode a slash in a name as `%2F`; the last segment of the address is the verb.",
            operations: locks::operations(),
        },
        Tag {
            name: "leases",
            description: "A lease is a lock with a time to live, acquired without a session. Any caller that knows its secret may renew and release it.",
            operations: leases::operations(),
        },
        Tag {
            name: "multilock",
            description: "Several locks at once: all of them or none.",
            operations: multilock::operations(),
        },
        Tag {
            name: "batch",
            description: "Several requests at once, each with its own result.",
            operations: batch::operations(),
        },
        Tag {
            name: "znodes",
            description: "The tree of znodes, by ZooKeeper's rules, which also contains the locks. The root has an empty path.",
            operations: znodes::operations(),
        },
        Tag {
            name: "watches",
            description: "One-shot watches, as long polls.",
            operations: znodes::watches(),
        },
        Tag {
            name: "terraform",
            description: "HTTP backend of Terraform and OpenTofu: the state `NAME` is the data of the znode `/NAME`, and its lock is the lock `NAME`.",
            operations: terraform::operations(),
        },
        Tag {
            name: "namespaces",
            description: "A namespace is the first component of a lock's name or of a znode's path. Administrators bound its usage by quotas.",
            operations: namespaces::operations(),
        },
        Tag {
            name: "access",
            description: "Access control. In a secured cluster a policy has to permit every request. All operations but the first two require the right to administer `/`.",
            operations: access::operations(),
        },
        Tag {
            name: "cluster",
            description: "For operators of the cluster.",
            operations: cluster::operations(),
        },
        Tag {
            name: "health",
            description: "For load balancers, supervisors and Prometheus, and this document.",
            operations: cluster::health(),
        },
    ]
}

/// A session in examples.
const SESSION: &str = "5d996fd7c6557613";

/// A holder in examples.
const HOLDER: &str = "_c_3f0c96ec5d1b4be2a0fd5a7c0d2b9a11-lock-0000000007";

/// Failures of operations that name a session.
const OF_SESSION: [Code; 2] = [Code::NoSession, Code::SessionExpired];

/// Lease in examples.
const LEASE: &str = "ls_5d996fd7c6557613_0f1e2d3c4b5a69788796a5b4c3d2e1f0";

/// Failures of reads that can be linearizable.
const FRESH: [Code; 1] = [Code::Unavailable];

/// Failures of all operations that go through the log.
const CHANGE: [Code; 2] = [Code::Unavailable, Code::OutcomeUnknown];

/// Failures of operations that enlarge the state.
const GROWS: [Code; 1] = [Code::ReadOnly];
