//! Holders and waiters of locks and semaphores, and nothing else.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::oneshot;

/// Numbers of forwarded requests that are finished and not yet reported to the process they came from.
pub type Finished = Arc<Mutex<Vec<u64>>>;

/// Takes all numbers.
pub fn take_finished(finished: &Finished) -> Vec<u64> {
    std::mem::take(&mut *finished.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The caller that waits for the outcome of a request.
pub enum ReplyTo {
    /// A client of this process.
    Client(oneshot::Sender<()>),
    /// Another process, which forwarded the request under this number.
    Process(Finished, u64),
}

/// All locks that were ever requested.
#[derive(Default)]
pub struct Locks {
    locks: HashMap<Bytes, Lock>,
}

#[derive(Default)]
struct Lock {
    held: u8,
    queue: VecDeque<ReplyTo>,
}

impl Locks {
    /// Grants a permit, now or when it is the caller's turn.
    pub fn acquire(&mut self, key: &Bytes, permits: u8, reply_to: ReplyTo) {
        let lock = self.locks.entry(key.clone()).or_default();
        if lock.held < permits {
            lock.held += 1;
            reply(reply_to);
        } else {
            lock.queue.push_back(reply_to);
        }
    }

    /// Takes a permit back and grants it to the first waiter.
    pub fn release(&mut self, key: &Bytes, reply_to: ReplyTo) {
        if let Some(lock) = self.locks.get_mut(key) {
            match lock.queue.pop_front() {
                Some(next) => reply(next),
                None => lock.held = lock.held.saturating_sub(1),
            }
        }
        reply(reply_to);
    }

    /// Returns whether an acquire must wait even if every request in flight is a release.
    pub fn has_to_wait(&self, key: &Bytes, permits: u8, is_in_flight: bool) -> bool {
        let lock = self.locks.get(key);
        lock.is_some_and(|lock| lock.held >= permits && (!is_in_flight || !lock.queue.is_empty()))
    }
}

/// Reports the outcome to the caller.
pub fn reply(to: ReplyTo) {
    match to {
        // A client that has disconnected needs no reply.
        ReplyTo::Client(client) => drop(client.send(())),
        ReplyTo::Process(finished, number) => finished
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_permits_are_granted_in_order() {
        let key = Bytes::from_static(b"lock");
        let mut locks = Locks::default();
        let acquire = |locks: &mut Locks| {
            let (reply_to, answered) = oneshot::channel();
            locks.acquire(&key, 2, ReplyTo::Client(reply_to));
            answered
        };
        let nobody = || ReplyTo::Process(Finished::default(), 1);
        assert!(!locks.has_to_wait(&key, 2, false));
        let mut answered = [(); 4].map(|()| acquire(&mut locks));
        let in_by_now = |answered: &mut [oneshot::Receiver<()>]| {
            let answered = answered
                .iter_mut()
                .map(|one| one.try_recv() != Err(oneshot::error::TryRecvError::Empty));
            answered.collect::<Vec<_>>()
        };
        assert_eq!(in_by_now(&mut answered), [true, true, false, false]);
        assert!(locks.has_to_wait(&key, 2, true));
        locks.release(&key, nobody());
        assert_eq!(in_by_now(&mut answered), [true, true, true, false]);
        locks.release(&key, nobody());
        assert!(!locks.has_to_wait(&key, 2, true), "a release may be in flight");
        assert!(locks.has_to_wait(&key, 2, false));
        locks.release(&key, nobody());
        assert!(!locks.has_to_wait(&key, 2, false));
    }
}
