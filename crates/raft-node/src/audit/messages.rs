//! Messages of the audit: the leader's request and a member's answer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::comparison::{Finding, StateDigest};
use crate::ids::NodeId;
use crate::witness::Record;

/// Request of the leader, with its own digests and findings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditQuestion {
    /// Version of the digests. Only digests of one version compare.
    pub digest_version: u32,
    /// Digests of the leader's states.
    pub states: Vec<StateDigest>,
    /// Records of all members' directories.
    pub members: BTreeMap<NodeId, Record>,
    /// The leader's latest finding.
    pub finding: Option<Finding>,
    /// Lead of each member's wall clock over the leader's, in milliseconds; the leader itself included.
    pub clocks_ahead_ms: BTreeMap<NodeId, i64>,
}

/// Answer of a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditAnswer {
    /// Version of the digests, as in the request.
    pub digest_version: u32,
    /// Digests of the member's states.
    pub states: Vec<StateDigest>,
    /// Set if a majority has found the member's state wrong before.
    pub is_wrong: bool,
    /// The member's wall clock, in milliseconds since 1970.
    pub clock_ms: u64,
}
