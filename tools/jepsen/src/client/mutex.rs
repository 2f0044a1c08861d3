//! What all systems under test can do as lock services: lock, stay alive, unlock. Their clients say up to when they may
//! believe that they hold.

use std::time::Duration;

use futures_util::future::BoxFuture;
use lockgate_check::Nanos;

use super::answer::Answer;

/// One client of a lock service; it holds one lock at a time.
pub trait Mutex: Send {
    /// Takes a lock, and waits for it so long: its fencing token, or what is as good as one.
    fn lock<'a>(&'a mut self, name: &'a str, wait: Duration) -> BoxFuture<'a, Answer<u64>>;

    /// Stays alive for so long, or for as long as it can.
    fn keep(&mut self, time: Duration) -> BoxFuture<'_, ()>;

    /// Up to when it may believe that it holds, as far as it knows by now.
    fn believed_until(&self) -> Nanos;

    /// Gives the lock back. After anything but `Ok` the client begins anew, with another session.
    fn unlock(&mut self) -> BoxFuture<'_, Answer<()>>;

    /// Dies without a word; what comes after is another client.
    fn die(&mut self);
}
