//! Commands on keys, in terms of reads and changes.

use std::time::Duration;

use bytes::Bytes;
use fault_injection::planted::{self, Bug};

use crate::keys::{Entry, Expiry, Failure, Keys, NOT_GRANTED, Ttl, Value};
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
/// A value that holds the lock already is renewed, with `NX` only if this node confirms it to a client of Redlock: see [`Change::confirm`].
pub(crate) async fn set(
    keys: &Keys<'_>,
    key: &[u8],
    value: &[u8],
    options: &SetOptions,
) -> Result<Reply, Failure> {
    let text = Value::parse(value)?;
    let mut change = keys.change(key)?;
    let is_nx = options.condition == SetIf::Absent;
    loop {
        let is_free =
            |entry: Option<&Entry>| entry.is_none() && is_nx && matches!(options.life, Life::For(_));
        let entry = change.read_or_guess(is_free).await?;
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
            // Whether the same value is confirmed is decided below.
            SetIf::Absent => entry.is_none() || is_same,
            SetIf::Present => entry.is_some(),
            SetIf::Equal(expected) => entry
                .as_ref()
                .is_some_and(|entry| entry.lease_with(expected).is_some()),
        };
        if !is_met {
            return Ok(refused(options, entry.as_ref()));
        }
        let is_done = match &entry {
            None => {
                let expiry = match options.life {
                    Life::Kept => Expiry::Never,
                    Life::For(expiry) => expiry,
                    Life::Over => return Ok(former()),
                };
                change.acquire(&text, expiry).await?.is_some()
            }
            Some(entry) => {
                let lease = entry.lease()?;
                let expiry = match options.life {
                    Life::Kept => Expiry::of_lease(lease),
                    Life::For(expiry) => expiry,
                    Life::Over if is_nx => return Ok(refused(options, Some(entry))),
                    Life::Over => match change.release(lease).await? {
                        true => return Ok(former()),
                        false => continue,
                    },
                };
                match (is_same, is_nx) {
                    // A client of Redlock gives its keys an expiry.
                    (true, true) if expiry == Expiry::Never => return Ok(refused(options, Some(entry))),
                    (true, true) => match change.confirm(lease, expiry).await? {
                        Some(is_confirmed) => is_confirmed,
                        None => return Ok(refused(options, Some(entry))),
                    },
                    (true, false) => change.renew(lease, expiry).await?,
                    (false, _) => change.replace(lease, &text, expiry).await?,
                }
            }
        };
        if is_done {
            return Ok(former());
        }
        // The lock is drained, or closed after its last hold: it is free and grants nothing.
        if entry.is_none() && keys.read(key).await?.is_none() {
            return match is_nx {
                true => Ok(refused(options, None)),
                false => Err(Failure::error(NOT_GRANTED)),
            };
        }
    }
}

/// Returns the reply of a `SET` whose condition is not met.
fn refused(options: &SetOptions, entry: Option<&Entry>) -> Reply {
    match entry.filter(|_| options.returns_former) {
        Some(entry) => Reply::Bulk(entry.value()),
        None => Reply::Null,
    }
}

/// Deletes a key, if it has this value where one is given. Returns whether it did, or another node did for the same client of Redlock.
pub(crate) async fn delete(keys: &Keys<'_>, key: &[u8], value: Option<&[u8]>) -> Result<bool, Failure> {
    let mut change = keys.change(key)?;
    let has_value = |entry: Option<&Entry>| {
        value.is_some_and(|value| entry.is_some_and(|entry| entry.lease_with(value).is_some()))
    };
    loop {
        let entry = change.read_or_guess(has_value).await?;
        let is_released = match (&entry, value) {
            (Some(entry), None) => change.release(entry.lease()?).await?,
            (Some(entry), Some(_)) if planted::is(Bug::UncomparedValue) => {
                change.release(entry.lease()?).await?
            }
            (None, None) => return Ok(false),
            (entry, Some(value)) => match entry.as_ref().and_then(|entry| entry.lease_with(value)) {
                Some(lease) => change.release_own(lease.session).await?,
                None => return Ok(change.was_released_elsewhere(value)),
            },
        };
        if is_released {
            return Ok(true);
        }
    }
}

/// Deletes a key. Returns the value that it had.
pub(crate) async fn take(keys: &Keys<'_>, key: &[u8]) -> Result<Option<Bytes>, Failure> {
    let mut change = keys.change(key)?;
    while let Some(entry) = change.read().await? {
        if change.release(entry.lease()?).await? {
            return Ok(Some(entry.value()));
        }
    }
    Ok(None)
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

/// Returns the fencing token of the lease that holds a key's lock; `None` if none does.
pub(crate) async fn token(keys: &Keys<'_>, key: &[u8]) -> Result<Option<i64>, Failure> {
    Ok(match keys.read(key).await? {
        Some(Entry::Lease(lease)) => Some(i64::try_from(lease.fencing_token.0).unwrap_or(i64::MAX)),
        _ => None,
    })
}

/// Returns the remaining time of a key in milliseconds: -2 without a key, and -1 if it never expires.
pub(crate) async fn pttl(keys: &Keys<'_>, key: &[u8]) -> Result<i64, Failure> {
    Ok(pttl_of(keys, keys.read(key).await?.as_ref()))
}

/// Returns the same for a key that was read.
pub(crate) fn pttl_of(keys: &Keys<'_>, entry: Option<&Entry>) -> i64 {
    match entry {
        None => -2,
        Some(Entry::Other) => -1,
        Some(Entry::Lease(lease)) => keys.remaining(lease).map_or(-1, |left| {
            // Rounded up: a key whose time is over exists until its end is applied.
            i64::try_from(left.as_micros().div_ceil(1_000)).unwrap_or(i64::MAX)
        }),
    }
}

/// Returns the life for a number of milliseconds from now. A time longer than a lease can have never ends, since a lock must not end early.
pub(crate) fn life_of_ms(ms: i64) -> Life {
    match (ms, Ttl::from_ms(ms)) {
        (_, Some(ttl)) => Life::For(Expiry::In(ttl)),
        (..=0, None) => Life::Over,
        (_, None) => Life::For(Expiry::Never),
    }
}
