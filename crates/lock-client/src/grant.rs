//! Grant of a lock, as the cluster answers an acquire.

use serde::Deserialize;

use crate::fencing_token::FencingToken;
use crate::options::Mode;

/// Grant of one lock.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Grant {
    pub(crate) lock: String,
    pub(crate) mode: Mode,
    pub(crate) holder: String,
    pub(crate) fencing_token: FencingToken,
    pub(crate) holds: u32,
    pub(crate) permits: u32,
    /// Owner that the call named.
    #[serde(skip)]
    pub(crate) owner: Option<String>,
}
