//! Resource for one user at a time, as in Curator's tests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Duration of one use: long enough that a concurrent use would overlap.
const USE: Duration = Duration::from_millis(3);

/// Resource that panics on concurrent use.
#[derive(Default)]
pub struct LimitedResource(AtomicBool);

impl LimitedResource {
    /// Uses the resource for a moment.
    pub async fn use_it(&self) {
        assert!(
            !self.0.swap(true, Ordering::SeqCst),
            "concurrent use of the resource"
        );
        tokio::time::sleep(USE).await;
        self.0.store(false, Ordering::SeqCst);
    }

    /// Returns whether the resource is in use.
    pub fn is_used(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
