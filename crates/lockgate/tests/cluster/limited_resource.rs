//! A resource that is not made for two at a time, as Curator's tests have one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long one use takes: long enough that another one would fall into it.
const USE: Duration = Duration::from_millis(3);

/// Panics when two use it at a time.
#[derive(Default)]
pub struct LimitedResource(AtomicBool);

impl LimitedResource {
    /// Uses it for a moment.
    pub async fn use_it(&self) {
        assert!(!self.0.swap(true, Ordering::SeqCst), "two use it at a time");
        tokio::time::sleep(USE).await;
        self.0.store(false, Ordering::SeqCst);
    }

    /// Whether somebody uses it.
    pub fn is_used(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
