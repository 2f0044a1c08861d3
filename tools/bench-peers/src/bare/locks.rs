//! Who holds which lock, and who waits: as little as that can be.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::serve::Asked;
use super::{Request, Want};

/// Numbers of requests of another process that are done.
pub type Done = Arc<Mutex<Vec<u64>>>;

/// Takes what is done by now.
pub fn take_done(done: &Done) -> Vec<u64> {
    std::mem::take(&mut *done.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Who waits for an answer.
pub enum Waiting {
    /// A client of this process.
    Here(oneshot::Sender<()>),
    /// Another process, which calls the request so.
    There(Done, u64),
}

/// All locks that somebody has wanted.
#[derive(Default)]
pub struct Locks {
    locks: HashMap<Bytes, Lock>,
}

#[derive(Default)]
struct Lock {
    held: u8,
    queue: VecDeque<Waiting>,
}

impl Locks {
    /// Lets somebody in, now or when it is their turn.
    pub fn acquire(&mut self, key: &Bytes, permits: u8, waiting: Waiting) {
        let lock = self.locks.entry(key.clone()).or_default();
        if lock.held < permits {
            lock.held += 1;
            answer(waiting);
        } else {
            lock.queue.push_back(waiting);
        }
    }

    /// Lets the next one in.
    pub fn release(&mut self, key: &Bytes, waiting: Waiting) {
        if let Some(lock) = self.locks.get_mut(key) {
            match lock.queue.pop_front() {
                Some(next) => answer(next),
                None => lock.held = lock.held.saturating_sub(1),
            }
        }
        answer(waiting);
    }

    /// Whether who acquires has to wait, even if everything that is on its way is a release.
    pub fn has_to_wait(&self, key: &Bytes, permits: u8, is_in_flight: bool) -> bool {
        let lock = self.locks.get(key);
        lock.is_some_and(|lock| lock.held >= permits && (!is_in_flight || !lock.queue.is_empty()))
    }
}

/// Lets go who waits.
pub fn answer(waiting: Waiting) {
    match waiting {
        // Whoever has gone away needs no answer.
        Waiting::Here(client) => drop(client.send(())),
        Waiting::There(done, number) => done.lock().unwrap_or_else(PoisonError::into_inner).push(number),
    }
}

/// Does what was asked for, now that it is stored.
pub fn carry_out(locks: &mut Locks, one: Asked) {
    let Request { want, permits, key } = &one.request;
    match want {
        Want::Answer | Want::Tell | Want::Write => answer(one.waiting),
        Want::Acquire => locks.acquire(key, *permits, one.waiting),
        Want::Release => locks.release(key, one.waiting),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_go_from_one_to_the_next_in_turn() {
        let key = Bytes::from_static(b"lock");
        let mut locks = Locks::default();
        let acquire = |locks: &mut Locks| {
            let (waiting, answered) = oneshot::channel();
            locks.acquire(&key, 2, Waiting::Here(waiting));
            answered
        };
        let nobody = || Waiting::There(Done::default(), 1);
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
        assert!(!locks.has_to_wait(&key, 2, true), "a release may be on its way");
        assert!(locks.has_to_wait(&key, 2, false));
        locks.release(&key, nobody());
        assert!(!locks.has_to_wait(&key, 2, false));
    }
}
