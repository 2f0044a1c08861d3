//! Wait of a large write for its caller's pace.

use std::pin::Pin;
use std::sync::Arc;

use tokio::time::{Sleep, sleep};

use super::caller_pace::Taken;
use super::{Admission, Caller};

/// Wait of a large write before it is proposed. If it is dropped before its end, the caller gets its tokens back. Otherwise a client that loses patience
/// and repeats its writes would make them wait longer each time, until none of them is in time.
#[derive(Debug)]
pub struct LargeWriteWait {
    admission: Arc<Admission>,
    caller: Caller,
    tokens: f64,
    /// `None` after its end.
    time: Option<Pin<Box<Sleep>>>,
}

impl LargeWriteWait {
    pub(super) fn new(admission: Arc<Admission>, caller: Caller, taken: Taken) -> Self {
        Self {
            admission,
            caller,
            tokens: taken.tokens,
            time: Some(Box::pin(sleep(taken.wait))),
        }
    }

    /// Waits until the write may be proposed. After a cancellation it can be called again.
    pub async fn passed(&mut self) {
        if let Some(time) = &mut self.time {
            time.await;
            self.time = None;
        }
    }
}

impl Drop for LargeWriteWait {
    fn drop(&mut self) {
        if self.time.is_some() {
            self.admission.give_back_large_write(&self.caller, self.tokens);
        }
    }
}
