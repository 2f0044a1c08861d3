//! Estimate of whether an `acquire` would wait, before it is applied, for the scheduling of proposals. It refuses and changes nothing.

use crate::locks::plan::request_of;
use crate::model::command::{Command, Request};
use crate::model::lock::{LockCommand, LockMode};
use crate::store::Store;

impl Store {
    /// Returns the number of waiters that `request` would wait behind, if it were applied now. Returns `None` if it would not wait because it would
    /// be granted or refused at once, or if it is no `acquire` of one lock.
    ///
    /// The answer is valid for the state at this moment, and errs towards `None`.
    pub fn would_wait_behind(&self, request: &Request) -> Option<usize> {
        let Command::Lock(
            LockCommand::Acquire { wish, wait: true, .. }
            | LockCommand::AcquireBounded { wish, wait: true, .. },
        ) = &request.command
        else {
            return None;
        };
        // A request with a recorded outcome gets that outcome.
        if let Some(id) = &request.request_id
            && self
                .recorded_outcome(request.session, &request.caller, id)
                .is_some()
        {
            return None;
        }
        // A lock without contenders that grants nothing is too rare to matter here.
        let queue = self.locks.queue(&wish.lock)?;
        if self.locks.joins(request.session, wish) {
            return None;
        }
        let terms = self.locks.terms(&wish.lock);
        let mut wanted = request_of(wish);
        if wanted.mode == (LockMode::Semaphore { limit: 0 }) {
            wanted.mode = queue.mode(terms)?;
        }
        (!queue.would_grant(wanted, terms)).then(|| queue.len() - queue.holding())
    }
}
