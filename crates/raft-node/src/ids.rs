//! Identifiers of the parts of a cluster: nodes, their addresses and data directories, and the cluster
//! itself.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Id of a node: chosen by the operator, never 0, never used again after the node's disk is lost.
pub type NodeId = u64;

/// Addresses of a member of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberAddress {
    /// Address at which the node accepts its peers: `host:port`.
    pub peer: String,
    /// Address at which the node serves HTTP: `host:port`. Only shown to readers of the list of members.
    pub http: String,
}

/// Id of a data directory, chosen at random when the directory was created. A member is one directory on one
/// disk: a node that starts with another directory under the same node id has lost what it had acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DiskId(pub [u8; 16]);

impl fmt::Display for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Id of a cluster's history, chosen at random when the cluster was formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClusterId(pub [u8; 16]);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Member in the replicated membership.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Addresses that the member had when it joined. An address in the configuration of its peers is newer.
    pub address: MemberAddress,
    /// The only data directory that counts as this member.
    pub disk: DiskId,
}
