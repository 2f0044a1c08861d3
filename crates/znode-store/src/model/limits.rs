//! Limits of quantities. They are part of the state: a request must be refused on all replicas or on none, whatever each node's
//! configuration says. The leader proposes the configured limits.

use serde::{Deserialize, Serialize};

use crate::model::data::{Data, MAX_DATA_BYTES};
use crate::model::refusal::Refusal;

/// Limits that users may want to differ. What is beyond a limit when it is set stays; only more is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Limits {
    /// The most data of one znode in bytes; more than [`MAX_DATA_BYTES`] is not meant to travel.
    pub data_bytes: u32,
    /// The most children of one znode.
    pub children: u32,
    /// The most ephemeral nodes of one session. All of them go in one command when it ends.
    pub ephemerals: u32,
    /// The most sessions.
    pub sessions: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            data_bytes: MAX_DATA_BYTES as u32,
            // At some 250 bytes each a quarter of a gigabyte, and a list that no client asks for at once.
            children: 1_000_000,
            // Deleting them all in one command blocks the apply loop for about 40 ms.
            ephemerals: 100_000,
            // With what is remembered of their requests, up to 40 kilobytes each.
            sessions: 100_000,
        }
    }
}

impl Limits {
    /// Refuses data that is larger than allowed.
    pub(crate) fn check_size(&self, data: &Data) -> Result<(), Refusal> {
        if data.len() > self.data_bytes as usize {
            return Err(Refusal::DataTooLarge {
                bytes: data.len() as u64,
                limit: self.data_bytes.into(),
            });
        }
        Ok(())
    }
}
