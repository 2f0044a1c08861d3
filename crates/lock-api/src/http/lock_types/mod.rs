//! Documents of the lock routes: requests, checked and converted for the lock service, and answers. This file has the
//! limits and the words that several of them share.

mod acquire;
mod changes;
mod graph;
mod lists;
mod views;

use std::time::Duration;

use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;
use znode_store::CallerAddress;

use super::problem::Problem;
use crate::locks::WaitFor;

pub use acquire::{
    Acquire, AcquireBody, GrantAnswer, NamesWord, QueuedAnswer, Requester, Wanted, check_limit,
};
pub use changes::{
    BreakBody, ConfigureBody, DowngradeBody, ReleaseAnswer, ReleaseBody, ReleaseReplyBody,
    ReleaseRequestBody, RequestedAnswer, UpgradeBody,
};
pub use graph::{GraphAnswer, WaitAnswer};
pub use lists::{LocksAnswer, SeenLock, SummaryAnswer};
pub use views::{CheckAnswer, LockAnswer, SessionNames};

/// Maximum length of the reason of a break or a release request, and of the answer to a release request, in bytes.
pub const MAX_REASON_BYTES: usize = znode_store::MAX_REASON_BYTES;

/// Maximum length of a holder in bytes: generous for the name of a contender's znode, which other clients may choose.
pub const MAX_HOLDER_BYTES: usize = 512;

/// Maximum limit of a semaphore. Sums of permits stay far below 32 bits.
pub const MAX_SEMAPHORE_LIMIT: u32 = 1_000_000;

/// Maximum wait in milliseconds, seven days: `null` waits without a limit.
pub const MAX_WAIT_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// Returns the id of the trace of a request that came from this address.
pub fn trace_id(address: &CallerAddress) -> Option<String> {
    address.trace().map(|context| format!("{:032x}", context.trace))
}

/// Mode of a lock in documents; the limit of a semaphore is in a field beside it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = LockMode)]
pub enum ModeWord {
    #[default]
    /// One holder alone.
    Exclusive,
    /// Any number of holders.
    Shared,
    /// With shared holders, but one at a time.
    Upgradeable,
    /// Holders whose permits together stay within a limit.
    Semaphore,
}

/// `wait_ms`: absent and 0 try, a number is the maximum wait, `null` waits until the lock is granted.
pub fn wait_for<'de, D: Deserializer<'de>>(deserializer: D) -> Result<WaitFor, D::Error> {
    match Option::<u64>::deserialize(deserializer)? {
        None => Ok(WaitFor::Forever),
        Some(0) => Ok(WaitFor::Try),
        Some(ms @ 1..=MAX_WAIT_MS) => Ok(WaitFor::For(Duration::from_millis(ms))),
        Some(_) => Err(serde::de::Error::custom(format_args!(
            "wait_ms is at most {MAX_WAIT_MS}, or null to wait until the lock is granted"
        ))),
    }
}

/// Default of `wait_ms`.
pub fn no_wait() -> WaitFor {
    WaitFor::Try
}

/// Checks the length of a text.
pub fn within(field: &str, text: &str, limit: usize) -> Result<(), Problem> {
    match text.len() {
        length if length > limit => Err(Problem::bad_request(format!(
            "{field} has {length} bytes, more than the {limit} allowed"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
