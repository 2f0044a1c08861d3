//! Grant of a lock, as the cluster answers an acquire.

use serde::Deserialize;

use crate::options::Mode;

/// One grant.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Grant {
    pub(crate) lock: String,
    pub(crate) mode: Mode,
    pub(crate) holder: String,
    pub(crate) fencing_token: u64,
    pub(crate) holds: u32,
    pub(crate) permits: u32,
    /// The owner that the call named.
    #[serde(skip)]
    pub(crate) owner: Option<String>,
}
