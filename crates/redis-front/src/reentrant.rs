//! Reentrant locks of Redisson: a hash with one field, the holder, whose value is the number of its holds. Here the hash is the note of the
//! lease, as JSON. Only the holder itself changes the number, one command after the other.

use std::time::Duration;

use bytes::Bytes;
use znode_store::{HoldingLease, LeaseChange, MAX_HOLDS, RequestId};

use crate::keys::{Change, Changed, Entry, Expiry, Failure, Keys, NOT_GRANTED, Value};
use crate::scripts::sha1_of;

/// Time after which a waiter looks again at a lock that does not end by itself, as a session holds it, or its lease never ends. A release wakes it
/// earlier, unless its connection was cut.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Prefixes of the keys that belong to a lock of Redisson, before the lock's key in braces.
const TOKEN_PREFIX: &str = "redisson_lock_token";
const CHANNEL_PREFIX: &str = "redisson_lock__channel";

/// The hash: a holder and the number of its holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holds<'n> {
    pub holder: &'n str,
    pub count: usize,
}

impl<'n> Holds<'n> {
    /// Reads the hash; `None` if the text is no hash.
    pub fn parse(note: &'n str) -> Option<Self> {
        let (holder, count) = note.strip_prefix("{\"")?.strip_suffix('}')?.rsplit_once("\":")?;
        let count = count.parse().ok()?;
        let is_plain = is_plain(holder);
        (is_plain && (1..=MAX_HOLDS).contains(&count)).then_some(Self { holder, count })
    }

    fn note(self) -> String {
        let Self { holder, count } = self;
        format!("{{\"{holder}\":{count}}}")
    }
}

/// Returns whether a holder needs no escape in JSON. Redisson's are `UUID:THREAD`.
fn is_plain(holder: &str) -> bool {
    !holder.contains(|character: char| matches!(character, '"' | '\\') || character.is_control())
}

fn holder(bytes: &[u8]) -> Result<&str, Failure> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| is_plain(text));
    text.ok_or_else(|| {
        Failure::error("ERR the holder of a lock is UTF-8 without quotes, backslashes and control characters")
    })
}

/// Outcome of [`enter`].
pub(crate) enum Entered {
    Holds,
    /// Another holder has the lock. A waiter tries again after this time in milliseconds, or when it is woken.
    Busy(i64),
}

/// Acquires the lock for a holder, or adds a hold of it, and gives the lease its time.
pub(crate) async fn enter(
    keys: &Keys<'_>,
    key: &[u8],
    holder_name: &[u8],
    expiry: Expiry,
) -> Result<Entered, Failure> {
    let holder = holder(holder_name)?;
    let mut change = keys.change(key)?;
    loop {
        let entry = change.read().await?;
        let held = entry.as_ref().and_then(|entry| held_by(entry, holder));
        let note = |count| Holds { holder, count }.note();
        let is_done = match (&entry, held) {
            (None, _) => {
                let note = note(1);
                let value = Value::parse(note.as_bytes())?;
                change.acquire(&value, expiry).await?.is_some()
            }
            (Some(_), Some((_, MAX_HOLDS))) => {
                return Err(Failure::error("ERR the holder has entered the lock too often"));
            }
            (Some(_), Some((lease, count))) => {
                let rewritten = change.rewrite(lease, &note(count + 1), expiry, None).await?;
                rewritten == Changed::Now
            }
            (Some(entry), None) => return Ok(Entered::Busy(retry_ms(keys, entry))),
        };
        if is_done {
            return Ok(Entered::Holds);
        }
        // The lock is free, but drained or closed: it is granted to nobody.
        if entry.is_none() && keys.read(key).await?.is_none() {
            return Ok(Entered::Busy(ms(RETRY_AFTER)));
        }
    }
}

/// Ends a hold of a holder. Returns whether it was the last one; `None` if the holder does not hold the lock. A repetition with the same `id` has the
/// answer of the first call.
pub(crate) async fn leave(
    keys: &Keys<'_>,
    key: &[u8],
    holder_name: &[u8],
    expiry: Expiry,
    id: Option<&[u8]>,
) -> Result<Option<bool>, Failure> {
    let holder = holder(holder_name)?;
    let id = id.map(|id| RequestId::parse(&sha1_of(id)).expect("a digest is no longer than an id"));
    let mut change = keys.change(key)?;
    let entry = change.read().await?;
    let (changed, is_free) = match entry.as_ref().and_then(|entry| held_by(entry, holder)) {
        Some((lease, 1)) => (change.end(lease, id).await?, true),
        Some((lease, count)) => {
            let note = Holds {
                holder,
                count: count - 1,
            }
            .note();
            (change.rewrite(lease, &note, expiry, id).await?, false)
        }
        // The first call may have ended the hold. No lease has this session, so nothing happens if it has not.
        None => match id {
            Some(_) => (change.repeat(id).await?, true),
            None => return Ok(None),
        },
    };
    Ok(match changed {
        Changed::Now => Some(is_free),
        // The first call has found another number of holds. The lock is free now, unless the holder has it still.
        Changed::Before => Some(entry.is_none_or(|entry| held_by(&entry, holder).is_none())),
        Changed::Gone => None,
    })
}

/// Gives the lease its time again, if the holder holds the lock. Returns whether it does.
pub(crate) async fn renew(
    keys: &Keys<'_>,
    key: &[u8],
    holder_name: &[u8],
    expiry: Expiry,
) -> Result<bool, Failure> {
    let holder = holder(holder_name)?;
    let mut change = keys.change(key)?;
    loop {
        let entry = change.read().await?;
        let Some((lease, _)) = entry.as_ref().and_then(|entry| held_by(entry, holder)) else {
            return Ok(false);
        };
        if change.renew(lease, expiry).await? {
            return Ok(true);
        }
    }
}

/// Changes the number of holds of a holder to what `new_count` returns for the present one, which is 0 unless it holds the lock. With 0 the lock is
/// free. Otherwise the lease keeps its time to live; that of a new one never ends. Returns the former and the new number.
pub(crate) async fn set_count(
    keys: &Keys<'_>,
    key: &[u8],
    holder_name: &[u8],
    new_count: impl Fn(usize) -> Option<usize>,
) -> Result<(usize, usize), Failure> {
    let holder = holder(holder_name)?;
    let mut change = keys.change(key)?;
    loop {
        let entry = change.read().await?;
        let held = entry.as_ref().and_then(|entry| held_by(entry, holder));
        let former = held.map_or(0, |(_, count)| count);
        let count = new_count(former)
            .filter(|count| *count <= MAX_HOLDS)
            .ok_or_else(|| {
                Failure::Error(format!(
                    "ERR the hash of a lock has a number of holds of 0 to {MAX_HOLDS}"
                ))
            })?;
        let note = Holds { holder, count }.note();
        let is_done = match (&entry, held, count) {
            (_, None, 0) => true,
            (None, None, _) => {
                let value = Value::parse(note.as_bytes())?;
                change.acquire(&value, Expiry::Never).await?.is_some()
            }
            (Some(_), None, _) => {
                return Err(Failure::error(
                    "BUSY another holder has the lock, and the hash of a lock has one holder",
                ));
            }
            (_, Some((lease, _)), 0) => change.end(lease, None).await? == Changed::Now,
            (_, Some((lease, _)), _) => {
                let expiry = Expiry::of_lease(lease);
                change.rewrite(lease, &note, expiry, None).await? == Changed::Now
            }
        };
        if is_done {
            return Ok((former, count));
        }
        if entry.is_none() && keys.read(key).await?.is_none() {
            return Err(Failure::error(NOT_GRANTED));
        }
    }
}

/// Returns the lease of the holder with the number of its holds, if it holds the lock.
fn held_by<'e>(entry: &'e Entry, holder: &str) -> Option<(&'e HoldingLease, usize)> {
    let holds = entry.holds().filter(|holds| holds.holder == holder)?;
    Some((entry.lease().ok()?, holds.count))
}

fn retry_ms(keys: &Keys<'_>, entry: &Entry) -> i64 {
    let remaining = match entry {
        Entry::Lease(lease) => keys.remaining(lease),
        Entry::Other => None,
    };
    // Not zero: the lease exists until its end is applied.
    ms(remaining.unwrap_or(RETRY_AFTER)).max(1)
}

fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Returns the key of the lock whose fencing token `key` names, as `redisson_lock_token:{KEY}` does.
pub(crate) fn lock_of_token(key: &[u8]) -> Option<&[u8]> {
    in_braces(key, TOKEN_PREFIX)
}

/// Returns the key of the lock whose waiters listen to a channel.
pub(crate) fn lock_of_channel(channel: &[u8]) -> Option<&[u8]> {
    in_braces(channel, CHANNEL_PREFIX)
}

/// Returns the channel of the waiters for a lock.
pub(crate) fn channel_of(key: &[u8]) -> Bytes {
    let parts: [&[u8]; 4] = match key.contains(&b'{') {
        true => [CHANNEL_PREFIX.as_bytes(), b":", key, b""],
        false => [CHANNEL_PREFIX.as_bytes(), b":{", key, b"}"],
    };
    parts.concat().into()
}

/// Returns the key after a prefix: in braces, unless it has one itself.
fn in_braces<'k>(name: &'k [u8], prefix: &str) -> Option<&'k [u8]> {
    let rest = name.strip_prefix(prefix.as_bytes())?.strip_prefix(b":")?;
    let inner = rest.strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}"));
    Some(inner.filter(|key| !key.contains(&b'{')).unwrap_or(rest))
}

impl Change<'_> {
    /// Gives a lease another note, and its time.
    async fn rewrite(
        &self,
        lease: &HoldingLease,
        note: &str,
        expiry: Expiry,
        id: Option<RequestId>,
    ) -> Result<Changed, Failure> {
        let rewrite = LeaseChange::Rewrite {
            note: note.into(),
            timeout_ms: expiry.timeout_ms(),
        };
        self.change_once(lease.session, rewrite, id).await
    }

    /// Releases the lock for its holder.
    async fn end(&self, lease: &HoldingLease, id: Option<RequestId>) -> Result<Changed, Failure> {
        self.change_once(lease.session, LeaseChange::ReleaseOwn, id).await
    }

    /// Returns whether a change with this id was executed.
    async fn repeat(&self, id: Option<RequestId>) -> Result<Changed, Failure> {
        self.change_once(znode_store::SessionId(0), LeaseChange::ReleaseOwn, id)
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_is_read_as_it_was_written() {
        let holds = Holds {
            holder: "5e1a:b:57",
            count: 12,
        };
        assert_eq!(holds.note(), r#"{"5e1a:b:57":12}"#);
        assert_eq!(Holds::parse(&holds.note()), Some(holds));
        for other in [
            "",
            "a",
            "{}",
            r#"{"a":0}"#,
            r#"{"a":1001}"#,
            r#"{"a":-1}"#,
            r#"{"a":1,"b":2}"#,
            r#"{"a":"b"}"#,
        ] {
            assert_eq!(Holds::parse(other), None, "{other}");
        }
    }

    #[test]
    fn names_of_redisson_lead_to_the_lock() {
        for key in [&b"order"[..], b"a:b", b"{slot}order", b"a{slot}"] {
            assert_eq!(lock_of_channel(&channel_of(key)), Some(key));
        }
        assert_eq!(channel_of(b"order"), &b"redisson_lock__channel:{order}"[..]);
        assert_eq!(lock_of_token(b"redisson_lock_token:{order}"), Some(&b"order"[..]));
        assert_eq!(lock_of_token(b"order"), None);
        assert_eq!(lock_of_channel(b"redisson_lock_token:{order}"), None);
    }
}
