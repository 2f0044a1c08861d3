//! What a follower sees of its leader's life.

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// When the leader was heard of last, and whether something speaks against its life.
pub struct Signs {
    last: Mutex<Instant>,
    suspected: Notify,
    convinced: Notify,
    convinced_at: Mutex<Option<Instant>>,
}

impl Signs {
    /// As if it had been heard of just now.
    pub fn new() -> Self {
        Self {
            last: Mutex::new(Instant::now()),
            suspected: Notify::new(),
            convinced: Notify::new(),
            convinced_at: Mutex::new(None),
        }
    }

    /// It lives.
    pub fn heard(&self) {
        *self.last.lock() = Instant::now();
    }

    /// When it was heard of last.
    pub fn last(&self) -> Instant {
        *self.last.lock()
    }

    /// It may have ended: somebody should look. One look answers all that came before it.
    pub fn suspect(&self) {
        self.suspected.notify_one();
    }

    /// Returns when somebody should look.
    pub async fn suspected(&self) {
        self.suspected.notified().await;
    }

    /// It has ended, as far as can be seen from here: somebody should act.
    pub fn convince(&self) {
        *self.convinced_at.lock() = Some(Instant::now());
        self.convinced.notify_one();
    }

    /// Returns when somebody should act. Who was heard of since lives, whatever was seen before.
    pub async fn convinced(&self) {
        loop {
            self.convinced.notified().await;
            if *self.convinced_at.lock() > Some(self.last()) {
                return;
            }
        }
    }
}
