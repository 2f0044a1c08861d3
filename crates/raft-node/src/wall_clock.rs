//! This machine's wall clock: for people, for the times in znodes, and to sweep what nobody uses. Nothing that has to be
//! right depends on it.

use std::time::{SystemTime, UNIX_EPOCH};

/// In milliseconds since 1970. A clock before that counts as 1970.
pub fn now_ms() -> u64 {
    #[cfg(feature = "simulation")]
    if let Some(now_ms) = crate::simulation::ask(|host| host.wall_clock_ms()) {
        return now_ms;
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}
