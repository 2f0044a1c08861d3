//! Envelope: a request with its origin, as the log stores it.

use serde::{Deserialize, Serialize};
use znode_store::Request;

use raft_node::NodeId;
use raft_node::codec::{BadBytes, decode};

use crate::command_versions::COMMANDS_VERSION;

/// Process that proposed a command. A restarted node is another origin, so that it does not confuse proposals of its former process with its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// Node of the process.
    pub node: NodeId,
    /// Random number of the process.
    pub boot: u64,
}

/// Request of a client, with the pending proposal that waits for its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// Version that added this kind of command, or by whose rules members apply it; see `crate::command_versions`. It is the first byte, so that an
    /// older program can report it.
    pub version: u8,
    /// Process that has the pending proposal.
    pub origin: Origin,
    /// Number of the proposal within that process.
    pub call: u64,
    /// Request.
    pub request: Request,
}

impl Envelope {
    /// Returns an envelope of the version that added the request's kind of command.
    pub fn new(origin: Origin, call: u64, request: Request) -> Self {
        Self {
            version: crate::command_versions::since(&request.command),
            origin,
            call,
            request,
        }
    }

    /// Returns an envelope by the newest rules that all members are `known` to apply.
    pub fn by_rules(origin: Origin, call: u64, request: Request, known: impl FnOnce() -> u8) -> Self {
        Self {
            version: crate::command_versions::of_envelope(&request, known),
            origin,
            call,
            request,
        }
    }

    /// Decodes an envelope. Returns an error that names both versions if the envelope has a newer one.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadBytes> {
        match bytes.first() {
            Some(version) if *version > COMMANDS_VERSION => Err(BadBytes(format!(
                "a command of version {version}, and this program knows those up to {COMMANDS_VERSION}: a newer one is \
                 at work in this cluster, which this node needs, too"
            ))),
            _ => decode(bytes),
        }
    }
}
