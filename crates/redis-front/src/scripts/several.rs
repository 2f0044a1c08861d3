//! Scripts on several keys.

use std::time::Duration;

use bytes::Bytes;

use crate::keys::{Change, Entry, Expiry, Failure, Keys, Value};
use crate::operations::{self, ExpireIf, Expired, Life, SetIf, SetOptions, pttl_of};
use crate::reply::Reply;

/// Maximum number of looks at locks that another node is acquiring for the same client.
const MAX_LOOKS: usize = 20;

/// Time between two of them.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Acquires all locks, or none. Other clients can find some of them in use meanwhile, and no client can hold a lock that another one holds.
///
/// A client of Redlock sends the same to several nodes, which must not release what another of them has acquired. So the locks are acquired
/// only if all are free, and confirmed only if all have the value; while some have it, another node is acquiring them.
pub(super) async fn acquire_all(
    keys: &Keys<'_>,
    names: &[Bytes],
    value: &Bytes,
    life: Life,
) -> Result<usize, Failure> {
    let text = Value::parse(value)?;
    let Life::For(expiry) = life else {
        return Err(Failure::error("ERR invalid expire time in 'set' command"));
    };
    let changes: Result<Vec<_>, Failure> = names.iter().map(|name| keys.change(name)).collect();
    let (mut changes, mut was_refused) = (changes?, false);
    for _ in 0..MAX_LOOKS {
        let mut entries = Vec::with_capacity(names.len());
        for change in &mut changes {
            entries.push(change.read().await?);
        }
        if entries.iter().all(Option::is_none) {
            match acquire_free(&changes, &text, expiry).await? {
                // Another client was faster, perhaps the same one at another node. If all are free again, they are drained or closed.
                0 if !std::mem::replace(&mut was_refused, true) => continue,
                count => return Ok(count),
            }
        }
        let lease = |entry: &Entry| entry.lease_with(value).cloned();
        let of_others = |entry: &Entry| lease(entry).is_none();
        if entries.iter().flatten().any(of_others) {
            return Ok(0);
        }
        let leases: Option<Vec<_>> = entries
            .iter()
            .map(|entry| entry.as_ref().and_then(lease))
            .collect();
        let Some(leases) = leases else {
            tokio::time::sleep(LOOK_INTERVAL).await;
            continue;
        };
        let mut are_confirmed = true;
        for (change, lease) in changes.iter().zip(&leases) {
            match change.confirm(lease, expiry).await? {
                None => return Ok(0),
                Some(is_confirmed) => are_confirmed &= is_confirmed,
            }
        }
        if are_confirmed {
            return Ok(names.len());
        }
    }
    Ok(0)
}

/// Acquires free locks one after the other. If one of them is in use by then, releases the others again.
async fn acquire_free(changes: &[Change<'_>], value: &Value<'_>, expiry: Expiry) -> Result<usize, Failure> {
    let mut acquired = Vec::with_capacity(changes.len());
    for change in changes {
        let outcome = change.acquire(value, expiry).await;
        if let Ok(Some(lease)) = outcome {
            acquired.push((change, lease));
            continue;
        }
        for (change, lease) in acquired {
            change.release_own(lease).await?;
        }
        return outcome.map(|_| 0);
    }
    Ok(acquired.len())
}

/// Sets all keys if none of them exists, or if each begins as the value does, up to this length. Returns whether it did.
pub(super) async fn obtain_all(
    keys: &Keys<'_>,
    names: &[Bytes],
    value: &Bytes,
    beginning: usize,
    life: Life,
) -> Result<bool, Failure> {
    if acquire_all(keys, names, value, life).await? > 0 {
        return Ok(true);
    }
    let own = value.get(..beginning).unwrap_or(value);
    let mut former = Vec::with_capacity(names.len());
    for name in names {
        match keys.read(name).await?.map(|entry| entry.value()) {
            Some(found) if found.starts_with(own) => former.push(found),
            _ => return Ok(false),
        }
    }
    for (name, former) in names.iter().zip(former) {
        let options = SetOptions {
            condition: SetIf::Equal(former),
            returns_former: false,
            life,
        };
        if operations::set(keys, name, value, &options).await? != Reply::OK {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether all keys have the value.
async fn have_value(keys: &Keys<'_>, names: &[Bytes], value: &[u8]) -> Result<bool, Failure> {
    for name in names {
        let entry = keys.read(name).await?;
        if entry.is_none_or(|entry| entry.lease_with(value).is_none()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Gives all keys a time to live if all have the value. Returns whether it did.
pub(super) async fn extend_all(
    keys: &Keys<'_>,
    names: &[Bytes],
    value: &[u8],
    life: Life,
) -> Result<bool, Failure> {
    if !have_value(keys, names, value).await? {
        return Ok(false);
    }
    for name in names {
        let expired = operations::expire(keys, name, Some(value), ExpireIf::Always, |_| life);
        if expired.await? != Expired::Changed {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Deletes those keys that have the value. Returns their number.
pub(super) async fn release_all(keys: &Keys<'_>, names: &[Bytes], value: &[u8]) -> Result<usize, Failure> {
    let mut released = 0;
    for name in names {
        released += usize::from(operations::delete(keys, name, Some(value)).await?);
    }
    Ok(released)
}

/// Deletes all keys if all have the value. Returns whether it did.
pub(super) async fn release_all_or_none(
    keys: &Keys<'_>,
    names: &[Bytes],
    value: &[u8],
) -> Result<bool, Failure> {
    Ok(have_value(keys, names, value).await? && release_all(keys, names, value).await? == names.len())
}

/// Returns the shortest remaining time of the keys in milliseconds if all have the value; 0 if none of them expires.
pub(super) async fn ttl_of_all(
    keys: &Keys<'_>,
    names: &[Bytes],
    value: &[u8],
) -> Result<Option<i64>, Failure> {
    let mut shortest = None;
    for name in names {
        let entry = keys.read(name).await?;
        if entry
            .as_ref()
            .is_none_or(|entry| entry.lease_with(value).is_none())
        {
            return Ok(None);
        }
        let ttl = pttl_of(keys, entry.as_ref());
        if ttl > 0 {
            shortest = Some(shortest.map_or(ttl, |shortest: i64| shortest.min(ttl)));
        }
    }
    Ok(Some(shortest.unwrap_or(0)))
}
