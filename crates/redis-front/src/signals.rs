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

/// Waits until one of the locks is free, or the time is over. The caller then tries to acquire it, as after a signal.
pub(crate) async fn blpop(keys: &Keys<'_>, names: &[Bytes], timeout: &[u8]) -> Result<Reply, Failure> {
    let seconds = std::str::from_utf8(timeout)
        .ok()
        .and_then(|text| text.parse().ok());
    let timeout = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let timeout = timeout.ok_or_else(|| Failure::error("ERR timeout is not a float or out of range"))?;
    let timeout = match timeout.is_zero() {
        true => LONGEST_WAIT,
        false => timeout,
    };
    let lock = |signal: &Bytes| {
        let name = signal.strip_prefix(SIGNAL_PREFIX)?;
        Some((signal.clone(), [LOCK_PREFIX, name].concat()))
    };
    let locks: Option<Vec<_>> = names.iter().map(lock).collect();
    let locks = locks.ok_or_else(|| {
        Failure::error(
            "ERR BLPOP knows only the lists of python-redis-lock, whose names begin with lock-signal:",
        )
    })?;
    let until = Instant::now() + timeout;
    loop {
        for (signal, lock) in &locks {
            if keys.read(lock).await?.is_none() {
                return Ok(Reply::Array(vec![Reply::Bulk(signal.clone()), Reply::text("1")]));
            }
        }
        if Instant::now() + POLL_INTERVAL > until {
            tokio::time::sleep_until(until).await;
            // `BLPOP` has an array of its own for this in RESP2, which clients read as no value all the same.
            return Ok(Reply::Null);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
