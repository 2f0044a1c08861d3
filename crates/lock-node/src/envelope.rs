//! Command on its way through the log: a request in its envelope.

use serde::{Deserialize, Serialize};
use znode_store::Request;

use raft_node::NodeId;
use raft_node::codec::{BadBytes, decode};

use crate::command_versions::COMMANDS_VERSION;

/// Process that proposed a command. A restarted node is another origin, so that it does not take the answers of its former process for
/// its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// Node of the process.
    pub node: NodeId,
    /// Random number of the process.
    pub boot: u64,
}

/// Request of a client, with the call that waits for its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// Version that added this kind of command, or by whose rules members apply it. It is the first byte, so that an older program can
    /// report it. See `crate::command_versions`.
    pub version: u8,
    /// Process in which the call waits.
    pub origin: Origin,
    /// Number of the call within that process.
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

    /// Decodes an envelope. An envelope of a newer version is an error that names both versions.
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
