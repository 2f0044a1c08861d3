//! `BLPOP` on the lists by which python-redis-lock wakes waiters: `lock-signal:NAME` is the list of the lock `lock:NAME`. There are no lists
//! here: the list has an element while the lock is free.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::keys::{Failure, Keys};
use crate::reply::Reply;

const SIGNAL_PREFIX: &[u8] = b"lock-signal:";
const LOCK_PREFIX: &[u8] = b"lock:";

/// Time between two looks at the lock. The library itself would look at a lock of Redis when its signal arrives.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum time of a wait without a timeout. The library then calls again, which shows that its client still lives.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Wait until one of the locks is free, or the time is over. The client then tries to acquire the lock, as after a signal.
pub(crate) struct Wait {
    /// Lists, each with the key of its lock.
    locks: Vec<(Bytes, Vec<u8>)>,
    until: Instant,
}

impl Wait {
    /// Reads the arguments of `BLPOP`. The bytes are copied, because those that have arrived are shared by other commands.
    pub fn parse(arguments: &[Bytes]) -> Result<Self, Failure> {
        let Some((timeout, names)) = arguments.split_last().filter(|(_, names)| !names.is_empty()) else {
            return Err(Failure::error(
                "ERR wrong number of arguments for 'blpop' command",
            ));
        };
        let seconds = std::str::from_utf8(timeout).ok();
        let timeout = seconds
            .and_then(|seconds| seconds.parse().ok())
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let timeout = timeout.ok_or_else(|| Failure::error("ERR timeout is not a float or out of range"))?;
        let timeout = match timeout.is_zero() {
            true => LONGEST_WAIT,
            false => timeout,
        };
        let lock = |signal: &Bytes| {
            let name = signal.strip_prefix(SIGNAL_PREFIX)?;
            Some((Bytes::copy_from_slice(signal), [LOCK_PREFIX, name].concat()))
        };
        let locks: Option<Vec<_>> = names.iter().map(lock).collect();
        let locks = locks.ok_or_else(|| {
            Failure::error(
                "ERR BLPOP knows only the lists of python-redis-lock, whose names begin with lock-signal:",
            )
        })?;
        let until = Instant::now().checked_add(timeout);
        let until = until.ok_or_else(|| Failure::error("ERR timeout is out of range"))?;
        Ok(Self { locks, until })
    }

    /// Returns the reply if a lock is free. This node's state says so first, and only then what the cluster has acknowledged.
    pub async fn poll(&self, keys: &Keys<'_>) -> Result<Option<Reply>, Failure> {
        for (signal, lock) in &self.locks {
            if keys.read_here(lock)?.is_none() && keys.read(lock).await?.is_none() {
                let reply = Reply::Array(vec![Reply::Bulk(signal.clone()), Reply::text("1")]);
                return Ok(Some(reply));
            }
        }
        // `BLPOP` has an array of its own for this in RESP2, which clients read as no value all the same.
        Ok((Instant::now() >= self.until).then_some(Reply::Null))
    }

    /// Returns the time of the next look.
    pub fn next_look(&self) -> Instant {
        self.until.min(Instant::now() + POLL_INTERVAL)
    }
}
