//! Commands on keys, in terms of reads and changes.

use std::time::Duration;

use bytes::Bytes;

use crate::keys::{Entry, Expiry, Failure, Keys, Ttl, Value};
use crate::reply::Reply;

/// Condition of `SET`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum SetIf {
    #[default]
    Always,
    /// `NX`.
    Absent,
    /// `XX`.
    Present,
    /// `IFEQ`.
    Equal(Bytes),
}

/// Time to live that a command asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// `KEEPTTL`: the whole time of the former value.
    Kept,
    For(Expiry),
    /// A time that is over: the key is deleted.
    Over,
}

/// Options of `SET`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SetOptions {
    pub condition: SetIf,
    /// `GET`: the reply is the former value.
    pub returns_former: bool,
    pub life: Life,
}

/// Condition of the commands that change the expiry of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpireIf {
    Always,
    /// `NX`: it has none.
    Never,
    /// `XX`: it has one.
    Some,
    /// `GT`: the new one is later.
    Later,
    /// `LT`: the new one is earlier.
    Earlier,
}

/// Sets a key, as `SET` does. Returns the reply.
///
/// A value that holds the lock already is renewed, also with `NX`: a client of Redlock that knows all nodes of this cluster sends the same key
/// and value to each of them.
pub(crate) async fn set(
    keys: &Keys<'_>,
    key: &[u8],
    value: &[u8],
    options: &SetOptions,
) -> Result<Reply, Failure> {
    let text = Value::parse(value)?;
    let mut change = keys.change(key)?;
    loop {
        let entry = change.read().await?;
        let former = || match (options.returns_former, &entry) {
            (true, Some(entry)) => Reply::Bulk(entry.value()),
            (true, None) => Reply::Null,
            (false, _) => Reply::OK,
        };
        let is_same = entry
            .as_ref()
            .is_some_and(|entry| entry.lease_with(value).is_some());
        let is_met = match &options.condition {
            SetIf::Always => true,
            SetIf::Absent => entry.is_none() || is_same,
            SetIf::Present => entry.is_some(),
            SetIf::Equal(expected) => entry
                .as_ref()
                .is_some_and(|entry| entry.lease_with(expected).is_some()),
        };
        if !is_met {
            return Ok(match options.returns_former {
                true => former(),
                false => Reply::Null,
            });
        }
        let is_done = match &entry {
            None => {
                let expiry = match options.life {
                    Life::Kept => Expiry::Never,
                    Life::For(expiry) => expiry,
                    Life::Over => return Ok(former()),
                };
                change.acquire(&text, expiry).await?
            }
            Some(entry) => {
                let lease = entry.lease()?;
                let expiry = match options.life {
                    Life::Kept => Expiry::of_lease(lease),
                    Life::For(expiry) => expiry,
                    Life::Over => match change.release(lease).await? {
                        true => return Ok(former()),
                        false => continue,
                    },
                };
                match is_same {
                    true => change.renew(lease, expiry).await?,
                    false => change.replace(lease, &text, expiry).await?,
                }
            }
        };
        if is_done {
            return Ok(former());
        }
        // The lock is drained, or closed after its last hold: it is free and grants nothing.
        if entry.is_none() && options.condition == SetIf::Absent && keys.read(key).await?.is_none() {
            return Ok(match options.returns_former {
                true => former(),
                false => Reply::Null,
            });
        }
    }
}

/// Deletes a key, if it has this value where one is given. Returns whether it did.
pub(crate) async fn delete(keys: &Keys<'_>, key: &[u8], value: Option<&[u8]>) -> Result<bool, Failure> {
    let mut change = keys.change(key)?;
    loop {
        let Some(entry) = change.read().await? else {
            return Ok(false);
        };
        let lease = match value {
            Some(value) => match entry.lease_with(value) {
                Some(lease) => lease,
                None => return Ok(false),
            },
            None => entry.lease()?,
        };
        if change.release(lease).await? {
            return Ok(true);
        }
    }
}

/// Outcome of [`expire`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expired {
    /// The expiry was changed.
    Changed,
    /// There is no such key, or it has another value than the given one.
    Missing,
    /// The condition is not met.
    NotMet,
}

/// Changes the expiry of a key, if it has this value where one is given.
pub(crate) async fn expire(
    keys: &Keys<'_>,
    key: &[u8],
    value: Option<&[u8]>,
    condition: ExpireIf,
    life: impl Fn(Option<Duration>) -> Life,
) -> Result<Expired, Failure> {
    let mut change = keys.change(key)?;
    loop {
        let Some(entry) = change.read().await? else {
            return Ok(Expired::Missing);
        };
        let lease = match value {
            Some(value) => match entry.lease_with(value) {
                Some(lease) => lease,
                None => return Ok(Expired::Missing),
            },
            None => entry.lease()?,
        };
        let remaining = keys.remaining(lease);
        let life = life(remaining);
        if !is_met(condition, remaining, life) {
            return Ok(Expired::NotMet);
        }
        let is_done = match life {
            Life::For(expiry) => change.renew(lease, expiry).await?,
            Life::Kept => change.renew(lease, Expiry::of_lease(lease)).await?,
            Life::Over => change.release(lease).await?,
        };
        if is_done {
            return Ok(Expired::Changed);
        }
    }
}

/// Compares the remaining time with the new one. A key that never expires has an infinite time, as in Redis.
fn is_met(condition: ExpireIf, remaining: Option<Duration>, life: Life) -> bool {
    let new = match life {
        Life::Over => Some(Duration::ZERO),
        Life::For(Expiry::In(ttl)) => Some(ttl.duration()),
        Life::For(Expiry::Never) | Life::Kept => None,
    };
    match condition {
        ExpireIf::Always => true,
        ExpireIf::Never => remaining.is_none(),
        ExpireIf::Some => remaining.is_some(),
        ExpireIf::Later => remaining.is_some_and(|remaining| new.is_none_or(|new| new > remaining)),
        ExpireIf::Earlier => match (new, remaining) {
            (Some(new), Some(remaining)) => new < remaining,
            (Some(_), None) => true,
            (None, _) => false,
        },
    }
}

/// Returns the remaining time of a key in milliseconds: -2 without a key, and -1 if it never expires.
pub(crate) async fn pttl(keys: &Keys<'_>, key: &[u8]) -> Result<i64, Failure> {
    Ok(match keys.read(key).await? {
        None => -2,
        Some(Entry::Other) => -1,
        Some(Entry::Lease(lease)) => keys.remaining(&lease).map_or(-1, |left| {
            // Rounded up: a key whose time is over exists until its end is applied.
            i64::try_from(left.as_micros().div_ceil(1_000)).unwrap_or(i64::MAX)
        }),
    })
}

/// Returns the life for a number of milliseconds from now. A time longer than a lease can have never ends, since a lock must not end early.
pub(crate) fn life_of_ms(ms: i64) -> Life {
    match (ms, Ttl::from_ms(ms)) {
        (_, Some(ttl)) => Life::For(Expiry::In(ttl)),
        (..=0, None) => Life::Over,
        (_, None) => Life::For(Expiry::Never),
    }
}
