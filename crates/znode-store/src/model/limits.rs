//! Limits of quantities. They are part of the state, because all replicas must refuse a request or none, whatever the configuration of each node is.
//! The leader proposes its configured limits.

use serde::{Deserialize, Serialize};

use crate::model::data::{Data, MAX_DATA_BYTES};
use crate::model::refusal::Refusal;

/// Configurable limits. What already exceeds a new limit stays; only further growth is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Limits {
    /// Maximum data of one znode in bytes. It should be at most [`MAX_DATA_BYTES`], because requests with more are not supported.
    pub data_bytes: u32,
    /// Maximum number of children of one znode.
    pub children: u32,
    /// Maximum number of ephemeral znodes of one session. All of them are removed when it ends.
    pub ephemerals: u32,
    /// Maximum number of sessions.
    pub sessions: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            data_bytes: MAX_DATA_BYTES as u32,
            // At some 250 bytes each they take a quarter of a gigabyte. Their list is more than a client would request at once.
            children: 1_000_000,
            // Deleting them all in one command blocks the apply loop for about 40 ms.
            ephemerals: 100_000,
            // Each takes up to 40 kilobytes, with the recorded outcomes of its requests.
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
