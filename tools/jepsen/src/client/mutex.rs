//! Interface of all systems under test as lock services: lock, stay alive, unlock. Each client reports up to
//! when it may believe that it holds.

use std::time::Duration;

use futures_util::future::BoxFuture;
use lockgate_check::Nanos;

use super::result::CallResult;

/// One client of a lock service; it holds at most one lock at a time.
pub trait Mutex: Send {
    /// Acquires a lock, waiting up to `wait`; returns its fencing token or the system's equivalent.
    fn lock<'a>(&'a mut self, name: &'a str, wait: Duration) -> BoxFuture<'a, CallResult<u64>>;

    /// Keeps the session alive for `time`, or until that fails.
    fn stay_alive(&mut self, time: Duration) -> BoxFuture<'_, ()>;

    /// Returns the time up to which the client may believe that it holds, as far as it knows now.
    fn believed_until(&self) -> Nanos;

    /// Releases the lock. After anything but `Ok` the client starts over with another session.
    fn unlock(&mut self) -> BoxFuture<'_, CallResult<()>>;

    /// Crashes without ending its session; the next call acts as a new client.
    fn crash(&mut self);
}
